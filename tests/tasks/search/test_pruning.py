"""A trial that is worse than the median of the others ends early."""

from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace

import pytest

from tasks.callbacks.pruning import Pruning
from tasks.logging import summary
from tasks.process.exit_codes import PRUNED, Pruned
from tasks.study import state
from tasks.study.storage import trial_of
from tests.tasks.search.simulated_study import SimulatedStudy


def test_a_trial_worse_than_the_median_ends_and_is_marked_as_pruned(home, config):
    """The other trials had 1.0 at step 10; the median is 1.0, so 0.9 continues and 1.1 does not."""
    simulated = SimulatedStudy(config, design={"trials": 6, "confirm": 0, "whole": 2})
    simulated.train = lambda runs: [record_losses(simulated, run, 1.0) for run in runs] and 0
    simulated.max_trained = 2
    with ExitStack() as locks:
        for _ in range(2):
            simulated.train(simulated.search.take(locks, 1))
            simulated.search.tell()
        good, bad = simulated.search.take(locks, 2)
        for run, loss, ends in ((good, 0.9, False), (bad, 1.1, True)):
            report_to = run.report_to
            saved = []
            watch = Pruning(SimpleNamespace(total=30), report_to, partial(saved.append, 1))
            task = SimpleNamespace(step=10, validation={"loss": loss})
            trainer = SimpleNamespace(is_global_zero=True, world_size=1)
            if ends:
                with pytest.raises(Pruned) as error:
                    watch.on_validation_end(trainer, task)
                assert error.value.code == PRUNED and saved == [1]
                with pytest.raises(Pruned):  # killed before its end: resumed, it ends
                    Pruning(SimpleNamespace(total=30), report_to, lambda: None).on_train_start(
                        trainer, task
                    )
            else:
                watch.on_validation_end(trainer, task)
            assert trial_of(report_to).storage.get_trial(report_to["id"]).intermediate_values == {
                10: loss
            }
        directory = simulated.search.plan.directory(bad)
        summary.write(
            {"code": PRUNED, "text": "Ended early at step 10.", "step": 10},
            directory / summary.ENDED,
        )
        simulated.search.tell()
    assert [p["status"] for p in simulated.search.facts()["points"]] == [
        "finished",
        "finished",
        "running",
        "pruned",
    ]
    assert state.of(directory).status == "stopped"  # another study may continue it
    assert state.of(directory, pruned=True).over


def record_losses(simulated, run, loss):
    directory = simulated.search.plan.directory(run)
    (directory / "metrics.csv").write_text(f"step,val/loss\n10,{loss}\n20,{loss}\n30,{loss}\n")
    summary.write({"val/loss": loss, "steps": 30}, directory / "summary.json")
    return True


def test_every_rank_follows_the_decision_of_the_first():
    """A rank that does not report to the storage gets the decision by a broadcast."""
    watch = Pruning(SimpleNamespace(total=30), {"metric": "val/loss"}, lambda: None)
    task = SimpleNamespace(step=10, validation={"loss": 1.0})
    for pruned in (True, False):
        strategy = SimpleNamespace(broadcast=lambda own, pruned=pruned: own or pruned)
        trainer = SimpleNamespace(is_global_zero=False, world_size=2, strategy=strategy)
        if pruned:
            with pytest.raises(Pruned):
                watch.on_validation_end(trainer, task)
        else:
            watch.on_validation_end(trainer, task)
