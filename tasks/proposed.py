"""What a message proposes to do with a run next."""

import shlex
from pathlib import Path

from tasks.endings import NONFINITE, START_ANEW


def resume(run: str | Path) -> str:
    """The command line that goes on with a run."""
    return f"python train.py resume={shlex.quote(str(run))}"


def go_on(run: str | Path) -> str:
    """The sentence on a run that is not finished: how to go on with it, or, if a step that was not finite ended it, what to
    do instead, as train.py said at its end."""
    from tasks import summary  # which imports torch

    ended = summary.read(Path(run).expanduser(), summary.ENDED)
    if ended is not None and ended["code"] == NONFINITE:
        return f"A step that is not finite ended it. {START_ANEW}"
    return f"Go on with it: {resume(run)}"
