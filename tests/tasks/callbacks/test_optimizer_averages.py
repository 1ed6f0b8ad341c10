"""Weights that a schedule-free optimizer averages are validated and loaded, and a run is resumed
bit for bit.
"""

import json

import pytest
import torch

from tasks.run.resume import resume_run
from tests.tasks.command_lines import output
from xformer_kit.api import load as load_trained

pytest.importorskip("schedulefree")

WORDS = ["optim=schedule_free", "schedule=constant", "schedule.warmup=0"]


def state(folder):
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


def test_the_average_is_the_mean_of_the_steps(begin):
    """The trained weights are y = 0.9 x + 0.1 z, with x the mean of all z (algorithm 1)."""
    each = [*WORDS, "trainer.checkpoint_every=1", "trainer.val_every=1"]
    _, one = begin("one", *each, "trainer.max_steps=1")
    _, two = begin("two", *each, "trainer.max_steps=2")
    first, last = state(one), state(two)
    for name, average in last["average"].items():
        z_1 = first["average"][name]
        z_2 = (last["state_dict"][name] - 0.9 * average) / 0.1
        torch.testing.assert_close(average, (z_1 + z_2) / 2, rtol=0, atol=1e-5)


def test_the_average_is_validated_and_loaded(begin, capsys):
    _, folder = begin("run", *WORDS)
    saved, model = state(folder), load_trained(folder, checkpoint="last")
    for name, value in model.named_parameters():
        assert torch.equal(value, saved["average"][name])
    assert not torch.equal(model.embed.weight, saved["state_dict"]["embed.weight"])
    code, out, _ = output(capsys, "evaluate", folder, "--checkpoint", "last", "--json")
    right = json.loads((folder / "summary.json").read_text())["val/loss"]
    assert code == 0 and json.loads(out)["val/loss"] == pytest.approx(right, abs=1e-4)


def test_a_run_is_resumed_bit_for_bit(begin, monkeypatch):
    from tasks.callbacks.stopping import Deadline

    with monkeypatch.context() as patch:
        patch.setattr(Deadline, "_over", lambda self, trainer, task: task.step == 7)
        _, folder = begin("cut", *WORDS, "trainer.max_time=00:00:01:00")
    assert state(folder)["global_step"] == 7
    monkeypatch.setattr(Deadline, "_over", lambda self, trainer, task: False)
    assert resume_run(folder) == 0
    _, whole = begin("whole", *WORDS)
    for key in ("state_dict", "average"):
        pairs = zip(*(state(f)[key].values() for f in (folder, whole)), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    losses = [json.loads((f / "summary.json").read_text())["val/loss"] for f in (folder, whole)]
    assert losses[0] == losses[1]
