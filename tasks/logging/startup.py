"""Shows the stages of a run before its first step: on a terminal one line, which the next stage
replaces.

It imports only the standard library, so that the first stage is shown before torch is imported.
"""

import sys

CLEAR = "\r\x1b[2K"


def show(stage: str, plain: bool = True) -> None:
    """Show a stage, such as "Preparing the data", on stderr. If that is no terminal, print it on
    stdout if `plain`; stderr then contains only errors and warnings.
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
