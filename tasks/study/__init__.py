"""A study at work: it settles what is run, hands the runs to Hydra's launcher, and reports on them.

A study owns no run. Runs lie in a pool by their key, `outputs/runs/<key>`, so that one that is
finished is never repeated, by this study or another; a study's directory, `outputs/studies/<name>`,
holds the plan that names them, and the report.
"""

from tasks.study.sweep import go

__all__ = ["go"]
