"""Rewrite the report of a study from its runs; it is marked as partial while runs are missing.
Nothing is trained.
"""

import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
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


def run(args: Any) -> int:
    from tasks.study.report import report
    from xformer_kit.study.results import title
    from xformer_kit.text.command_lines import xformer

    directory = study_directory(args.study)
    before = _modification_times(directory)
    with redirect_stdout(sys.stderr if args.json else sys.stdout):
        results = report(directory)
    counts, every = Counter(run.status for run in results.outcomes), len(results.outcomes)
    written = sorted(
        path for path, time in _modification_times(directory).items() if before.get(path) != time
    )
    if not written:
        return 1  # the reason was printed
    data = {
        "folder": str(directory),
        "files": list(map(str, written)),
        "finished": counts["finished"],
        "runs": every,
    }
    lines = [f"        {path}" for path in written[1:]]  # `report` has printed the first one
    for run in results.outcomes:
        if run.status == "failed":
            name = title(results.variants[run.variant])
            lines.append(f"{name} seed {run.seed}: failed: {first_line(run.why)}")
    if counts["finished"] + counts["pruned"] < every:
        command = xformer("status", args.study)
        lines.append(f"{counts['finished']} of {every} runs finished; what is missing: {command}")
    return print_result(args, data, print_line, "\n".join(lines))


def _modification_times(directory: Path) -> dict[Path, int]:
    """Returns {file: time of its last change in nanoseconds}."""
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}
