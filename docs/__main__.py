"""python -m docs [--out site]: builds the documentation site. Exit code 1 if Sphinx warns, a link
is broken or a line of text is missing.
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
    count = f": {len(faults)} fault{'s' * (len(faults) > 1)}" if faults else ""
    print(f"{arguments.out / 'index.html'}{count}")
    sys.exit(bool(faults))
