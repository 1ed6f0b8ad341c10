"""Several processes that work on one search, and processes that were killed."""

from contextlib import ExitStack

import pytest

from tasks.study import state
from tests.tasks.search.simulated_study import SimulatedStudy

pytestmark = pytest.mark.extended


def test_two_workers_run_different_trials_and_take_again_one_of_a_dead_worker(home, config):
    simulated = SimulatedStudy(config)
    one, two = simulated.search, simulated.begin()
    held, dead = ExitStack(), ExitStack()
    mine = [run.key for run in one.take(held, 2)]
    theirs = two.take(dead, 1)
    assert len({*mine, *(run.key for run in theirs)}) == 3
    assert two.take(dead, 1)[0].key not in {*mine, theirs[0].key}
    dead.close()  # as the operating system does when a process ends
    again = one.take(held, 1)
    assert [run.key for run in again] == [theirs[0].key] and len(one.trials()) == 4
    with state.claim(one.plan.directory(theirs[0])) as training, ExitStack() as third:
        assert (
            training and simulated.begin().take(third, 9)[0].key != theirs[0].key
        )  # the parent died, the run still trains
    held.close()


@pytest.mark.parametrize("storage", [None, "sqlite:///trials.db"])
def test_two_workers_may_record_one_trial_at_the_same_time(home, config, monkeypatch, storage):
    """One worker records the trial while the other is recording it: no error, and one record."""
    simulated = SimulatedStudy(config, storage=storage)
    one, two = simulated.search, simulated.begin()
    with ExitStack() as held:
        simulated.train(one.take(held, 1))
    monkeypatch.setattr(two.study.sampler, "after_trial", lambda *_: one.tell())
    two.tell()
    assert [status for _, status, _ in simulated.points] == ["finished"] and one.proposals.all()[
        0
    ].value is not None


@pytest.mark.parametrize("storage", [None, "sqlite:///trials.db"])
def test_the_count_of_trials_holds_with_several_workers(home, config, storage):
    simulated = SimulatedStudy(config, design={"trials": 4}, storage=storage)
    with ExitStack() as held:
        assert len(simulated.search.take(held, 3)) == 3
        assert len(simulated.begin().take(held, 3)) == 1
        assert simulated.begin().take(held, 3) == []


def test_a_proposal_of_a_killed_worker_is_taken_by_the_next(home, config):
    simulated, there = (
        SimulatedStudy(config),
        SimulatedStudy(config, name="uninterrupted", runs="outputs/others"),
    )
    asked = simulated.search.proposals
    simulated.search.study.enqueue_trial(
        {"optim.lr": 1e-3, "model.dim": 32, "attn.heads": "4", "position": "rotary"}
    )
    asked.study.ask()  # and is killed
    with ExitStack() as held:
        runs = simulated.begin().take(held, 3)
        assert [run.variant.label for run in runs] == [
            run.variant.label for run in there.search.take(held, 3)
        ]
        assert runs[0].variant.label == "baseline"
