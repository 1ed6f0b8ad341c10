"""Checkpoints that are written while training goes on: checkpoints.asynchronous."""

import time

import torch

from tasks.checkpoints import checkpoints
from xformer_kit.checkpoint import read

WORDS = "trainer.checkpoint_every=2", "checkpoints.keep_every=2", "trainer.max_steps=6"


def test_a_checkpoint_has_the_state_of_its_step_though_training_goes_on(begin, monkeypatch):
    write = checkpoints.write

    def slow(*arguments):
        time.sleep(0.3)  # the next step is taken meanwhile
        write(*arguments)

    monkeypatch.setattr(checkpoints, "write", slow)
    _, one = begin("one", *WORDS)
    _, two = begin("two", *WORDS, "checkpoints.asynchronous=true")
    for step in (2, 4, 6):
        a, b = (read(run / "checkpoints" / f"step_{step}.ckpt") for run in (one, two))
        torch.testing.assert_close(a.state_dict, b.state_dict, rtol=0, atol=0)
        torch.testing.assert_close(a.optimizer["state"], b.optimizer["state"], rtol=0, atol=0)


def test_a_write_that_fails_ends_the_run_with_its_reason(begin, monkeypatch, capsys):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "_torch_save", full)
    code, _ = begin("run", *WORDS, "checkpoints.asynchronous=true")
    err = capsys.readouterr().err
    assert code == 1 and "No space left on device" in err and "Traceback" not in err
