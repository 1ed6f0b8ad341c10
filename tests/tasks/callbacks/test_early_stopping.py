"""`callbacks.early_stopping` ends a run by Lightning's rule, at the same step after a kill."""

import csv
import json
import shutil
import signal
from types import SimpleNamespace

import pytest
from refusals import refused

from tasks.callbacks.monitored import MonitoredMetrics
from tasks.callbacks.stopping import SignalStop
from tasks.checkpoints import checkpoints
from tasks.run.resume import resume_run
from tests.test_resume import same
from xformer_kit import compose
from xformer_kit.config import config_hash
from xformer_kit.registry import ConfigError

FALLING_THEN_RISING_LOSS = [
    "optim.lr=3",
    "schedule.warmup=20",
    "trainer.max_steps=40",
    "trainer.val_every=2",
    "trainer.checkpoint_every=3",
    "callbacks.early_stopping.patience=3",
]


def validations(folder, column="val/loss") -> dict[int, float]:
    with open(folder / "metrics.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["val/loss"]]
    return {int(row["step"]): float(row[column]) for row in rows}


def last_step(values: dict[int, float], patience: int, min_delta: float = 0) -> int | None:
    """The step of the validation at which patience is used up."""
    best, waited = float("inf"), 0
    for step, value in values.items():
        best, waited = (value, 0) if value < best - min_delta else (best, waited + 1)
        if waited == patience:
            return step
    return None


def results(folder) -> dict:
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize(
    ("metric", "min_delta"),
    [("val/loss", 0), *(pytest.param(*case, marks=pytest.mark.extended) for case in
     [("val/loss", 0.05), ("train/loss", 0)])],
)  # fmt: skip
def test_a_run_ends_when_the_metric_has_not_improved(begin, capsys, metric, min_delta):
    options = [f"callbacks.early_stopping.{k}={v}" for k, v in
               (("metric", metric), ("min_delta", min_delta))]  # fmt: skip
    code, folder = begin("run", *FALLING_THEN_RISING_LOSS, *options)
    values = validations(folder, metric)
    step = last_step(values, 3, min_delta)
    assert code == 0 and step == max(values) == results(folder)["steps"] < 40
    stopped = results(folder)["stopped"]
    best = min(value for at, value in values.items() if at < step)
    if not min_delta:
        assert stopped == (
            f"stopped by callbacks.early_stopping at step {step} of 40 (Monitored metric {metric}"
            f" did not improve in the last 3 records. Best score: {best:.3f}.)"
        )
    assert f"({metric} did not improve in the last 3 records. Best score: " in stopped.replace(
        "Monitored metric ", ""
    )
    assert stopped[:60] in capsys.readouterr().out
    assert checkpoints.read(folder / "checkpoints" / "last.ckpt").global_step == step
    if metric != "train/loss":
        assert resume_run(folder) == 0
        assert "is finished" in capsys.readouterr().out


AVERAGE = "checkpoints.average=2"


@pytest.mark.parametrize(
    ("options", "cuts"),
    [
        ([], (5, 8)),
        pytest.param([], range(1, 20), marks=pytest.mark.extended),
        pytest.param([AVERAGE], range(1, 20), marks=pytest.mark.extended),
        pytest.param(["ema.decay=0.5"], range(1, 20, 3), marks=pytest.mark.extended),
    ],
    ids=["twice", "after each step", "mean of checkpoints", "ema"],
)
def test_a_run_stopped_by_signals_ends_at_the_same_step(begin, monkeypatch, options, cuts):
    _, whole = begin("whole", *FALLING_THEN_RISING_LOSS, *options)
    assert results(whole)["steps"] < 20
    left = set(cuts)

    def signal_number(self, trainer, task):
        if task.step not in left or task.step >= results(whole)["steps"]:
            return 0
        left.discard(task.step)
        return signal.SIGTERM

    monkeypatch.setattr(SignalStop, "_signal_number", signal_number)
    code, folder = begin("cut", *FALLING_THEN_RISING_LOSS, *options)
    while code:
        assert code == 143
        code = resume_run(folder)
    check_same_end(folder, whole)


@pytest.mark.parametrize("options", [[], pytest.param([AVERAGE], marks=pytest.mark.extended)])
@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.extended)])
def test_a_run_killed_at_its_end_takes_no_further_step(begin, tmp_path, options, lost):
    """lost: number of its last checkpoints that were not written yet."""
    _, whole = begin("whole", *FALLING_THEN_RISING_LOSS, *options)
    folder = tmp_path / "killed"
    shutil.copytree(whole, folder)
    (folder / "summary.json").unlink()
    if lost:
        (folder / "checkpoints" / "last.ckpt").unlink()
    assert resume_run(folder) == 0
    check_same_end(folder, whole)


def check_same_end(folder, whole) -> None:
    files = [run / "checkpoints" / "last.ckpt" for run in (folder, whole)]
    states = [checkpoints.read(file).entries() for file in files]
    for state in states:
        for key in ("spent", "config"):
            state.pop(key)
    assert same(*states)
    assert (folder / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    for key in ("steps", "stopped", "val/loss", "sample"):
        assert results(folder)[key] == results(whole)[key], key


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (
            "callbacks.early_stopping.patience=0",
            "callbacks.early_stopping.patience: must be at least 1 validation; got 0.",
        ),
        (
            "callbacks.early_stopping.min_delta=-1",
            "callbacks.early_stopping.min_delta: must be at least 0; got -1.",
        ),
        (
            "callbacks.early_stopping.metric=loss",
            (
                "callbacks.early_stopping.metric: must be a metric of the validation, val/..., or"
                " train/loss; got 'loss'. Try val/loss."
            ),
        ),
        (
            "callbacks.early_stopping.metric=train/loss trainer.val_every=3",
            (
                "callbacks.early_stopping.metric: train/loss needs a trainer.val_every that"
                " trainer.log_every_n_steps divides; got 3 and 10. Try val/loss."
            ),
        ),
        (
            "callbacks.early_stopping={} trainer.val_every=null",
            (
                "callbacks.early_stopping: needs validations before the last step;"
                " trainer.val_every is null. Set trainer.val_every=200."
            ),
        ),
    ],
)
def test_options_without_a_meaning_are_refused(words, fault):
    assert refused(words.split()) == [fault]


@pytest.mark.parametrize("option", ["checkpoints", "callbacks.early_stopping"])
def test_a_metric_that_the_run_does_not_log_is_refused_before_the_first_step(begin, capsys, option):
    code, folder = begin("run", f"{option}.metric=val/lost", f"{option}.mode=min")
    assert code == 2 and not folder.exists()
    assert capsys.readouterr().err.endswith(
        f"{option}.metric: the run has no metric 'val/lost'. Did you mean 'val/loss'? Known:"
        " train/loss, val/loss, val/perplexity, val/bits_per_byte.\n"
    )


def test_metrics_of_a_task_are_computed_only_if_one_of_them_is_named():
    computed = []
    task = SimpleNamespace(
        split_metrics=SimpleNamespace(names=lambda: ["loss", "prose/loss"]),
        validation={},
        validation_metrics=lambda: computed.append(1) or {"exact_match": 0.0},
    )
    check = lambda metric, more=False: MonitoredMetrics({"x": metric}, more).on_train_start(
        None, task
    )
    for metric in ("val/loss", "val/prose/loss", "train/loss"):
        check(metric)
    check("val/mine", more=True)
    assert not computed
    check("val/exact_match")
    assert computed == [1]
    with pytest.raises(ConfigError, match=r"^x: the run has no metric 'val/exact'\. Did you mean"):
        check("val/exact")
    task.validation = {"exact_match": 0.5}  # of the checkpoint of a resumed run
    check("val/exact_match")
    assert computed == [1, 1]


def test_validations_decide_the_result_only_with_a_callback_that_may_end_the_run():
    def hashes(*words: str) -> set[str]:
        return {config_hash(compose([*words, f"trainer.val_every={n}"])) for n in (100, 200)}

    assert len(hashes()) == len(hashes("callbacks.norms={}")) == 1
    assert len(hashes("callbacks.early_stopping={}")) == 2
