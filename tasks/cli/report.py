"""Rewrite the report of a study from its runs; it is marked as partial while runs are missing.
Nothing is trained.
"""

import sys
from contextlib import redirect_stdout
from typing import Any

from tasks.cli.command import print_line, print_result, study_directory

SUMMARY = "rewrite the report of a study from its runs"
EXAMPLES = """examples:
  xformer report norm_placement
  xformer report outputs/studies/norm_placement --json"""
OPTIONS = {
    "study STUDY": "a study's directory, or its name under outputs/studies",
    "--json": "print the paths of its files and the number of runs as JSON",
}

SUFFIXES = (".html", ".md", ".csv")  # of a report's files


def run(args: Any) -> int:
    from tasks.study.report import write_report

    directory = study_directory(args.study)
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
