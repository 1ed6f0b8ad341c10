"""Rewrite the report of a study from its runs: partial, and marked so, while runs are missing.
Nothing is trained.
"""

import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tasks.cli.command import console, output, say, study_folder
from xformer_kit.registry.messages import first_line

SUMMARY = "rewrite the report of a study from the runs that are there"
EXAMPLES = """examples:
  xformer report norm_placement
  xformer report outputs/studies/norm_placement --json"""
OPTIONS = {
    "study STUDY": "a study's directory, or its name under outputs/studies",
    "--json": "print the paths of its files and the number of runs as JSON",
}


def run(args: Any) -> int:
    from tasks.study.report import report
    from xformer_kit.registry.command_lines import xformer
    from xformer_kit.study.results import title

    folder = study_folder(args.study)
    before = _files(folder)
    with redirect_stdout(sys.stderr if args.json else sys.stdout):
        found = report(folder)
    counts, every = Counter(one.status for one in found.outcomes), len(found.outcomes)
    written = sorted(path for path, when in _files(folder).items() if before.get(path) != when)
    if not written:
        return 1  # the reason was printed
    plain = {
        "folder": str(folder),
        "files": list(map(str, written)),
        "finished": counts["finished"],
        "runs": every,
    }
    lines = [f"        {path}" for path in written[1:]]  # it has named the first itself
    for one in found.outcomes:
        if one.status == "failed":
            name = title(found.variants[one.variant])
            lines.append(f"{name} seed {one.seed}: failed: {first_line(one.why)}")
    if counts["finished"] + counts["pruned"] < every:
        way = xformer("status", args.study)
        lines.append(f"{counts['finished']} of {every} runs finished; what is missing: {way}")
    return output(args, plain, say, console(), "\n".join(lines))


def _files(folder: Path) -> dict[Path, int]:
    """Files of a study's directory -> when each was written last, in nanoseconds."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
