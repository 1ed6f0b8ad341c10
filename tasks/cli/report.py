"""Rewrite the report of a study from its runs; it is marked as partial while runs are missing.
Nothing is trained.
"""

import sys
from collections import Counter
from contextlib import redirect_stdout
from typing import Any

from tasks.cli.command import print_line, print_result, study_directory
from xformer_kit.registry.messages import first_line

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
    from xformer_kit.study.results import title
    from xformer_kit.text.command_lines import xformer

    directory = study_directory(args.study)
    with redirect_stdout(sys.stderr if args.json else sys.stdout):
        results, content = write_report(directory)
    counts, every = Counter(run.status for run in results.outcomes), len(results.outcomes)
    if content is None:
        return 1  # the reason was printed
    written = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    data = {
        "folder": str(directory),
        "files": list(map(str, written)),
        "finished": counts["finished"],
        "runs": every,
    }
    lines = [f"        {path}" for path in written if path.suffix != ".html"]  # which is printed
    for run in results.outcomes:
        if run.status == "failed":
            name = title(results.variants[run.variant])
            lines.append(f"{name} seed {run.seed}: failed: {first_line(run.why)}")
    if counts["finished"] + counts["pruned"] < every:
        command = xformer("status", args.study)
        lines.append(f"{counts['finished']} of {every} runs finished; what is missing: {command}")
    return print_result(args, data, print_line, "\n".join(lines))
