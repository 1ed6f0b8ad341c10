"""Draws results/default_run.svg, the picture in README.md of what the default run prints.

    python -m benchmarks.default_run_picture

The run is written to the current directory's outputs/. Its stages and its bar, which a terminal
replaces, are left out.
"""

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parents[1]
WIDTH = 100  # columns
REPLACED = re.compile(r".* \.\.\.\n|step [\d,]+/.*\n")  # stages, and lines in place of the bar


def printed() -> str:
    """Returns what the default run prints, with its escape sequences for colours."""
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # as if activated
    environment = {"FORCE_COLOR": "1", "COLUMNS": f"{WIDTH}", "PYTHONPATH": str(HERE)}
    return subprocess.run(
        [sys.executable, str(HERE / "train.py"), "trainer.enable_progress_bar=false"],
        env=os.environ | environment | {"PATH": binaries},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    ).stdout


def draw() -> None:
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print(Text("$ python train.py", style="bold"))
    console.print(Text.from_ansi(REPLACED.sub("", printed())))
    console.save_svg(str(HERE / "benchmarks/results/default_run.svg"), title="xformer_kit")


if __name__ == "__main__":
    draw()
