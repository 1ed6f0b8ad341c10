"""The stages that a run shows before its first step."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.logging import startup

ROOT = Path(__file__).parents[3]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_stage_replaces_the_one_before_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    startup.show("Checking the config", plain=False)
    startup.show("Preparing the data")
    startup.clear()
    first, second, end = f"{startup.CLEAR}Checking the config ...", "Preparing the data ...", ""
    assert screen.getvalue() == first + startup.CLEAR + second + startup.CLEAR + end


def test_a_stage_is_a_line_without_a_terminal(capsys):
    startup.show("Checking the config", plain=False)
    startup.show("Preparing the data")
    startup.clear()
    assert capsys.readouterr() == ("Preparing the data ...\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("program", ["train", "tasks.cli"])
def test_a_terminal_shows_a_stage_before_torch_is_imported(program):
    """torch cannot be imported here, and the first stage is shown nevertheless."""
    code = (
        f"import sys; sys.modules['torch'] = None; sys.path.insert(0, {str(ROOT)!r});"
        f" import {program} as program; program.main(['train'])"
    )
    terminal, child = pty.openpty()
    done = subprocess.run([sys.executable, "-c", code], stdout=child, stderr=child, timeout=120)
    os.close(child)
    assert done.returncode != 0
    assert os.read(terminal, 65536).decode().startswith(f"{startup.CLEAR}Importing PyTorch ...")
