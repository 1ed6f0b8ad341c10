"""Averaged weights are validated and loaded; training continues with the trained ones, and resumes
bit for bit.
"""

import json

import pytest
import torch

from tasks.run.resume import resume_run
from xformer_kit.api import load as load_trained


def state(folder, name="last"):
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)


def test_a_moving_average_equals_its_formula(begin):
    each = [
        "trainer.checkpoint_every=1",
        "trainer.val_every=1",
        "trainer.max_steps=1",
        "schedule=constant",
    ]
    _, one = begin("one", *each, "ema.decay=0.75")
    start, trained, average = (
        initial_weights(begin),
        state(one)["state_dict"],
        state(one)["average"],
    )
    for name, value in average.items():
        torch.testing.assert_close(value, 0.75 * start[name] + 0.25 * trained[name])


def initial_weights(begin):
    """Returns the initial weights: those of a run whose only step has a learning rate near zero."""
    _, folder = begin(
        "still",
        "trainer.max_steps=1",
        "schedule=constant",
        "optim.lr=1e-30",
        "optim.weight_decay=0",
    )
    return state(folder)["state_dict"]


@pytest.mark.extended
def test_an_average_does_not_change_training(begin):
    _, plain = begin("plain", "model.dropout=0.1")
    _, averaged = begin("averaged", "model.dropout=0.1", "ema.decay=0.9")
    pairs = zip(
        state(plain)["state_dict"].values(), state(averaged)["state_dict"].values(), strict=True
    )
    assert all(torch.equal(a, b) for a, b in pairs)
    losses = [
        json.loads((folder / "summary.json").read_text())["val/loss"]
        for folder in (plain, averaged)
    ]
    assert losses[0] != losses[1]


def test_the_average_is_loaded(begin):
    _, folder = begin("averaged", "ema.decay=0.9")
    model, saved = load_trained(folder, checkpoint="last"), state(folder)
    for name, value in model.named_parameters():
        assert torch.equal(value, saved["average"][name])


def test_the_mean_of_the_last_checkpoints_is_saved_at_the_end(begin):
    _, folder = begin(
        "mean", "checkpoints.average=3", "trainer.checkpoint_every=5", "trainer.val_every=20"
    )
    files = sorted((folder / "checkpoints").glob("weights_*.pt"))
    assert sorted(int(f.stem.split("_")[1]) for f in files) == [10, 15, 20]
    each = [torch.load(f, weights_only=True) for f in files]
    average = state(folder)["average"]
    for name, value in average.items():
        torch.testing.assert_close(value, torch.stack([e[name] for e in each]).mean(0))


@pytest.mark.extended
def test_a_moving_average_is_resumed(begin, monkeypatch):
    from tasks.callbacks.stopping import Deadline

    with monkeypatch.context() as patch:
        patch.setattr(Deadline, "_over", lambda self, trainer, task: task.step == 7)
        _, folder = begin("cut", "ema.decay=0.9", "trainer.max_time=00:00:01:00")
    monkeypatch.setattr(Deadline, "_over", lambda self, trainer, task: False)
    assert resume_run(folder) == 0
    _, whole = begin("whole", "ema.decay=0.9")
    assert all(
        torch.equal(a, b)
        for a, b in zip(*(state(f)["average"].values() for f in (folder, whole)), strict=True)
    )


@pytest.mark.extended
def test_weights_of_repeated_steps_are_not_in_the_mean(begin):
    words = ["checkpoints.average=3", "trainer.checkpoint_every=5", "trainer.val_every=20"]
    _, whole = begin("whole", *words)
    _, folder = begin("again", *words)
    for name in (
        "summary.json",
        "checkpoints/last.ckpt",
        "checkpoints/best.ckpt",
    ):  # back to step 15
        (folder / name).unlink()
    kept = folder / "checkpoints"
    for step in (18, 19):  # a run with a checkpoint at other steps was here
        torch.save(
            {name: w + 1 for name, w in state(whole)["state_dict"].items()},
            kept / f"weights_{step}.pt",
        )
    assert resume_run(folder) == 0
    assert sorted(file.name for file in kept.glob("weights_*")) == sorted(
        file.name for file in (whole / "checkpoints").glob("weights_*")
    )
    assert all(
        torch.equal(a, b)
        for a, b in zip(*(state(f)["average"].values() for f in (folder, whole)), strict=True)
    )
