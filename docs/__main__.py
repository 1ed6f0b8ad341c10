"""python -m docs [--out site]: write the pages, let Sphinx build them, follow every link, and
compare the text of every page with its source. Exit code 1 if a link is broken or a line is lost.
"""

import argparse
import sys
from pathlib import Path

from docs.build import build

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m docs", description="Build the reference as a static site."
    )
    parser.add_argument("--out", type=Path, default=Path("site"), help="directory of the site")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("build/docs"),
        help="directory of the pages that Sphinx reads",
    )
    arguments = parser.parse_args()
    faults = build(arguments.work, arguments.out)
    print(*faults, sep="\n", file=sys.stderr)
    print(
        f"{arguments.out / 'index.html'}: {len(faults)} faults"
        if faults
        else arguments.out / "index.html"
    )
    sys.exit(bool(faults))
