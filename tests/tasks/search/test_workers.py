"""Several processes that work on one search, and processes that were killed."""

from contextlib import ExitStack

import pytest

from tasks.study import state
from tests.tasks.search.simulated_study import SimulatedStudy

pytestmark = pytest.mark.extended


def test_two_workers_run_different_trials_and_repeat_that_of_a_dead_worker(home, config):
    simulated = SimulatedStudy(config)
    first, second = simulated.search, simulated.begin()
    locks, dead = ExitStack(), ExitStack()
    first_keys = [run.key for run in first.take(locks, 2)]
    second_runs = second.take(dead, 1)
    assert len({*first_keys, *(run.key for run in second_runs)}) == 3
    assert second.take(dead, 1)[0].key not in {*first_keys, second_runs[0].key}
    dead.close()  # as the operating system does when a process ends
    again = first.take(locks, 1)
    assert [run.key for run in again] == [second_runs[0].key] and len(first.trials()) == 4
    with state.claim(first.plan.directory(second_runs[0])) as training, ExitStack() as third:
        assert (
            training and simulated.begin().take(third, 9)[0].key != second_runs[0].key
        )  # the parent died, the run still trains
    locks.close()


@pytest.mark.parametrize("storage", [None, "sqlite:///trials.db"])
def test_two_workers_may_record_one_trial_at_the_same_time(home, config, monkeypatch, storage):
    """One worker records the trial while the other is recording it: no error, and one record."""
    simulated = SimulatedStudy(config, storage=storage)
    first, second = simulated.search, simulated.begin()
    with ExitStack() as locks:
        simulated.train(first.take(locks, 1))
    monkeypatch.setattr(second.study.sampler, "after_trial", lambda *_: first.tell())
    second.tell()
    assert [status for _, status, _ in simulated.points] == ["finished"] and first.proposals.all()[
        0
    ].value is not None


@pytest.mark.parametrize("storage", [None, "sqlite:///trials.db"])
def test_several_workers_run_as_many_trials_as_one(home, config, storage):
    simulated = SimulatedStudy(config, design={"trials": 4}, storage=storage)
    with ExitStack() as locks:
        assert len(simulated.search.take(locks, 3)) == 3
        assert len(simulated.begin().take(locks, 3)) == 1
        assert simulated.begin().take(locks, 3) == []


def test_a_proposal_of_a_killed_worker_is_taken_by_the_next(home, config):
    simulated, there = (
        SimulatedStudy(config),
        SimulatedStudy(config, name="uninterrupted", runs="outputs/others"),
    )
    proposals = simulated.search.proposals
    simulated.search.study.enqueue_trial(
        {"optim.lr": 1e-3, "model.dim": 32, "attn.heads": "4", "position": "rotary"}
    )
    proposals.study.ask()  # and is killed
    with ExitStack() as locks:
        runs = simulated.begin().take(locks, 3)
        assert [run.variant.label for run in runs] == [
            run.variant.label for run in there.search.take(locks, 3)
        ]
        assert runs[0].variant.label == "baseline"
