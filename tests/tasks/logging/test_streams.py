"""Output that nothing reads any more, as in `xformer train | head -1`."""

import os
import subprocess
import sys

import pytest

from tasks.cli import main
from tasks.logging import summary
from tasks.logging.streams import output_without_reader
from tests.train_processes import ROOT

TINY = [
    *("model.dim=16", "model.layers=1", "attn.heads=2", "data=copy", "data.batch_size=2"),
    *("trainer.max_steps=2", "trainer.log_every_n_steps=1", "schedule.warmup=1", "logger=none"),
]


@pytest.fixture
def closed_pipe():
    """A text stream to a pipe whose reader is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    yield stream
    stream.close()


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_text_without_a_reader_is_discarded(name, closed_pipe, monkeypatch):
    monkeypatch.setattr(sys, name, closed_pipe)
    with output_without_reader():
        for _ in range(3):
            print("text", file=getattr(sys, name), flush=True)
    assert getattr(sys, name) is closed_pipe


def test_another_error_of_a_stream_is_raised(monkeypatch):
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        with pytest.raises(OSError, match="No space"), output_without_reader():
            print("text", flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


def test_a_command_that_only_prints_ends_quietly(closed_pipe, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", closed_pipe)
    assert main(["components", "attn"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.extended
@pytest.mark.slow
def test_a_run_goes_on_without_a_reader(tmp_path):
    with subprocess.Popen(
        [sys.executable, ROOT / "train.py", *TINY, f"hydra.run.dir={tmp_path / 'run'}"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, "Traceback" in error) == (0, False)
    assert summary.read(tmp_path / "run")["steps"] == 2


@pytest.mark.extended
@pytest.mark.parametrize("closed", [1, 2])
def test_a_stream_that_is_closed_from_the_start_is_no_error(closed, tmp_path):
    line = f"{sys.executable} {ROOT / 'train.py'} mask=nope {closed}>&-"
    found = subprocess.run(
        line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    assert found.stderr.startswith("mask: no mask is called 'nope'." if closed == 1 else "")
