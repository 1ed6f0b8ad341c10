"""best.ckpt holds the weights of the lowest validation loss, the first of equal ones, whatever came
later.
"""

import csv

import torch

from tasks.callbacks.stopping import Deadline
from tasks.run.resume import resume_run
from xformer_kit.model.api import load

FALLING_THEN_RISING_LOSS = [
    "optim.lr=3",
    "schedule.warmup=20",
    "trainer.max_steps=21",
    "trainer.val_every=1",
]  # the rate grows too large: the loss falls, then rises


def losses(folder) -> dict[int, float]:
    with open(folder / "metrics.csv", newline="") as file:
        return {
            int(row["step"]): float(row["val/loss"])
            for row in csv.DictReader(file)
            if row["val/loss"]
        }


def best(folder) -> dict:
    return torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)


def test_the_lowest_loss_is_kept_and_loaded(begin):
    _, folder = begin("swing", *FALLING_THEN_RISING_LOSS)
    each = losses(folder)
    lowest = min(each, key=each.__getitem__)
    assert lowest not in (1, 20)  # neither the first nor the last
    assert best(folder)["global_step"] == lowest
    loaded = load(folder).state_dict()
    assert all(
        torch.equal(value, loaded[name]) for name, value in best(folder)["state_dict"].items()
    )


def test_a_resumed_run_replaces_the_best_only_by_a_lower_loss(begin, monkeypatch):
    _, whole = begin("swing", *FALLING_THEN_RISING_LOSS)
    with monkeypatch.context() as patch:
        patch.setattr(Deadline, "_over", lambda self, trainer, task: task.step == 10)
        _, folder = begin("cut", *FALLING_THEN_RISING_LOSS, "trainer.max_time=00:00:01:00")
    monkeypatch.setattr(Deadline, "_over", lambda self, trainer, task: False)
    assert resume_run(folder) == 0
    each = losses(folder)
    assert each == losses(whole)
    assert min(each, key=each.__getitem__) < 10
    assert best(folder)["global_step"] == best(whole)["global_step"]


def test_the_first_of_equal_losses_is_kept(begin):
    _, folder = begin(
        "still",
        "optim.lr=1e-30",
        "optim.weight_decay=0",
        "schedule=constant",
        "trainer.val_every=5",
    )
    assert len(losses(folder)) == 4 and len(set(losses(folder).values())) == 1
    assert best(folder)["global_step"] == 5
