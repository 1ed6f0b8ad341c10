"""Runs studies: resolves the plan, launches its runs with Hydra's launcher, and writes the report.

Runs are in a pool that all studies share, `outputs/runs/<key>`, so a finished run is never
repeated. A study's directory, `outputs/studies/<name>`, has the plan with the keys of its runs, and
the report.
"""

from tasks.study.sweep import run_study

__all__ = ["run_study"]
