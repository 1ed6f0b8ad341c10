"""What a run does before its first step: one line on a terminal, which the next one replaces.

Imports nothing but the standard library: the first line is there before torch is imported.
"""

import sys

CLEAR = "\r\x1b[2K"


def show(stage: str, plain: bool = True) -> None:
    """Show a stage, such as "Preparing the data", on stderr. Without a terminal it is a line on
    stdout, if `plain`: stderr then has errors and warnings only.
    """
    if sys.stderr.isatty():
        sys.stderr.write(f"{CLEAR}{stage} ...")
        sys.stderr.flush()
    elif plain:
        print(f"{stage} ...", flush=True)


def clear() -> None:
    """Remove the stage from a terminal, before anything else is printed."""
    if sys.stderr.isatty():
        sys.stderr.write(CLEAR)
        sys.stderr.flush()
