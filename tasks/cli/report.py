"""Rewrite the report of a study from its runs; it is marked as partial while runs are missing.
Nothing is trained.

With --tasks the finished runs are evaluated on tasks of the library lm-eval, as `xformer evaluate`
does, and a report by the score of each task is written to STUDY/evaluations/TASK. Scores of the
same items are not computed again.
"""

import sys
from contextlib import redirect_stdout
from typing import Any

from tasks.cli.command import print_line, print_result, study_directory
from tasks.process.command_faults import flag, refuse
from xformer_kit.registry import Fault

SUMMARY = "rewrite the report of a study from its runs"
EXAMPLES = """examples:
  xformer report norm_placement
  xformer report outputs/studies/norm_placement --json
  xformer report norm_placement --tasks hellaswag,my_task.yaml --limit 200"""
OPTIONS = {
    "study STUDY": "a study's directory, or its name under outputs/studies",
    "--tasks NAME,FILE": (
        "compare by tasks of lm-eval, or by task files (YAML) or directories of them, with commas"
        ' between them (needs pip install "xformer_kit[eval]")'
    ),
    "--metric NAME": "the score of a task, such as acc_norm (its first one)",
    "--limit N": "only the first N items of each task",
    "--few-shot N": "answered examples in front of each question (as in the task)",
    "--json": "print the paths of its files and the number of runs as JSON",
}

SUFFIXES = (".html", ".md", ".csv")  # of a report's files


def run(args: Any) -> int:
    from tasks.study.report import write_report

    directory = study_directory(args.study)
    if args.tasks is not None:
        from tasks.cli.report_tasks import report_tasks

        return report_tasks(args, directory)
    refuse(
        Fault(flag(name), "has no effect without --tasks", fix="Leave it out.")
        for name in ("metric", "limit", "few_shot")
        if getattr(args, name) is not None
    )
    with redirect_stdout(sys.stderr if args.json else sys.stdout):
        results, content = write_report(directory)
    if content is None:
        return 1  # the reason was printed
    written = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    data = {
        "folder": str(directory),
        "files": list(map(str, written)),
        "finished": [run.status for run in results.outcomes].count("finished"),
        "runs": len(results.outcomes),
    }
    others = (f"        {path}" for path in written if path.suffix != ".html")  # it is printed
    return print_result(args, data, print_line, "\n".join(others))
