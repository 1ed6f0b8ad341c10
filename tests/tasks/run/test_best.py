"""best.ckpt holds the weights of the best value of a metric, by default the lowest validation loss,
and the first of equal ones, whatever came later; further checkpoints are kept if configured.
"""

import csv
import math
import os
from pathlib import Path
from random import Random

import pytest
import torch

from tasks.callbacks.monitored import Ranking
from tasks.callbacks.stopping import Deadline
from tasks.checkpoints import checkpoints
from tasks.modules.configured_metrics import create_metrics
from tasks.run.resume import resume_run
from xformer_kit.api import load
from xformer_kit.metrics import METRICS, known_metric, mode_of

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


@pytest.mark.extended
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


def kept(folder) -> list[int]:
    return sorted(int(path.stem[5:]) for path in (folder / "checkpoints").glob("step_*.ckpt"))


@pytest.mark.parametrize(
    ("mode", "reverse"), [("min", False), pytest.param("max", True, marks=pytest.mark.extended)]
)
def test_the_best_values_of_a_metric_are_kept(begin, mode, reverse):
    options = ["checkpoints.keep_best=3", "checkpoints.metric=val/perplexity"]
    _, folder = begin("swing", *FALLING_THEN_RISING_LOSS, *options, f"checkpoints.mode={mode}")
    each = losses(folder)
    steps = sorted(each, key=each.__getitem__, reverse=reverse)[:3]
    assert kept(folder) == sorted(steps)
    assert best(folder)["global_step"] == steps[0]
    assert best(folder)["best_steps"][0][0] == steps[0]
    copies = (folder / "checkpoints" / f"{name}.ckpt" for name in ("best", f"step_{steps[0]}"))
    assert len({file.read_bytes() for file in copies}) == 1
    for step in steps:
        saved = torch.load(folder / "checkpoints" / f"step_{step}.ckpt", weights_only=True)
        assert saved["global_step"] == step


@pytest.mark.parametrize(
    ("metric", "mode"), [("val/loss", "min"), ("val/accuracy", "max"), ("val/b/exact_match", "max")]
)
def test_the_mode_of_a_known_metric_is_not_needed(metric, mode):
    assert mode_of(metric, None) == mode
    assert mode_of(metric, "min") == "min"


@pytest.mark.parametrize("name", sorted(METRICS))
def test_the_mode_of_a_metric_of_the_package_is_that_of_torchmetrics(name):
    """torchmetrics has none for the Pearson correlation."""
    if METRICS.get(name).__module__ == METRICS.get("accuracy").__module__:
        cpu, inputs = torch.device("cpu"), ["logits", "classes", "values", "texts"]
        (created,) = create_metrics({"metrics": {name: {}}}, 8, cpu, inputs).values()
        assert known_metric(f"val/{name}") is not None
        higher = True if name == "pearson" else created.higher_is_better
        assert mode_of(f"val/{name}", None) == ("max" if higher else "min")


def test_nan_is_never_the_best():
    ranking = Ranking("val/loss", "min", 2)
    values = [math.nan, 3.0, 2.0, math.inf, 2.0, math.nan]
    assert [ranking.add(step, value) for step, value in enumerate(values)] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]
    assert ranking.steps == [2, 4]


def test_the_checkpoint_of_every_nth_step_is_kept(begin):
    _, folder = begin("run", "checkpoints.keep_every=6")
    assert kept(folder) == [6, 12, 18]
    assert load(folder, checkpoint=12).state_dict().keys() == load(folder).state_dict().keys()


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(4))
def test_a_run_cut_off_while_it_saves_keeps_the_same_checkpoints(begin, monkeypatch, seed):
    """Cut off before one of the renames of checkpoints, three times, and resumed."""
    options = [*FALLING_THEN_RISING_LOSS, "checkpoints.keep_best=2", "checkpoints.keep_every=4"]
    _, whole = begin("whole", *options)
    draw = Random(seed)
    operations, replace, link, unlink = [], os.replace, os.link, Path.unlink

    def cutting(function):
        def call(path, *arguments, **named):
            if ".ckpt" in str(path):
                operations.append(path)
                if len(operations) in cuts:
                    raise CutOffError
            return function(path, *arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for owner, name, function in (
            (os, "replace", replace),
            (os, "link", link),
            (Path, "unlink", unlink),
        ):
            patch.setattr(owner, name, cutting(function))
        cuts = sorted(draw.sample(range(1, 35), 3))
        code, folder = begin("cut", *options)
        for _ in range(3):
            code = code and resume_run(folder)
    assert code == 0 and len(operations) > cuts[-1]
    assert files(folder) == files(whole)
    assert losses(folder) == losses(whole)


class CutOffError(Exception):
    """In the place of a kill."""


def files(folder) -> dict[str, int]:
    """The names and the steps of a run's checkpoints, without previous.ckpt, which is one step
    older after a resume.
    """
    paths = (folder / "checkpoints").iterdir()
    names = {path: path.name for path in paths if path.name != "previous.ckpt"}
    return {name: checkpoints.read(path).global_step for path, name in names.items()}
