"""Trials of a search: which points are run, refused, confirmed and tried again."""

import json
import math
import shutil
from pathlib import Path

import pytest

from tasks.logging import summary
from tasks.study.search import run_search
from tests.messages import messages
from tests.tasks.search.simulated_study import NODE, STOPPED, SimulatedStudy
from xformer_kit.config import check
from xformer_kit.registry import ConfigError

pytestmark = pytest.mark.extended


def test_a_search_tries_its_trials_and_confirms_the_best(home, config):
    simulated = SimulatedStudy(config)
    assert simulated.go() == 0
    plan = json.loads(Path("outputs/studies/small/plan.json").read_text())
    points = plan["search"]["points"]
    assert len(points) == 12 and points[0]["label"] == "baseline"
    best = sorted(points[1:], key=lambda p: p["value"])[:3]
    assert plan["search"]["confirmed"] == [p["label"] for p in best]
    assert len(plan["runs"]) == len(simulated.trained) == len(set(simulated.trained)) == 12 + 4 * 2
    assert min(p["value"] for p in points) < points[0]["value"]
    simulated.search = simulated.begin()
    assert simulated.go() == 0 and len(simulated.trained) == 20  # nothing is run again


def test_a_stopped_search_continues_with_the_same_trials(home, config):
    design = {"trials": 9, "confirm": 1}
    simulated = SimulatedStudy(config, design=design)
    simulated.go()
    points = simulated.points
    shutil.rmtree("outputs")
    other = SimulatedStudy(config, design=design)
    for other.max_trained in (1, 5, 8):
        assert other.go() == STOPPED
        other.search = other.begin()
    other.max_trained = math.inf
    assert other.go() == 0
    assert (
        other.points == points
        and other.trained == simulated.trained
        and len(set(other.trained)) == 9 + 2 * 2
    )


def test_no_invalid_model_is_run(home, config):
    """Most points of this space are invalid: heads do not divide dim, or channels of a head cannot
    be turned in pairs.
    """
    hard = {**NODE["factors"], "attn.heads": [3, 5, 6, 7], "model.dim": {"low": 8, "high": 64}}
    proposed = {}
    for sampler, trials in (("random", 36), ("tpe", 24)):
        design = {"trials": trials, "confirm": 0, "sampler": sampler}
        simulated = SimulatedStudy(config, name=sampler, factors=hard, design=design, seeds=1)
        assert simulated.go() == 0
        found, facts = simulated.search.proposals.all(), simulated.search.facts()
        keys = {point["key"] for point in facts["points"]}
        assert len(simulated.points) == len(keys) == trials
        assert all(
            messages(check(simulated.configs[key], data=False)) == []
            for key in [*keys, *simulated.trained]
        )
        assert (
            facts["refused"]
            == sum("refused" in t.user_attrs for t in found)
            == len(found) - trials - facts["again"]
        )
        proposed[sampler] = len(found)
    assert proposed["random"] + proposed["tpe"] > 200
    assert proposed["tpe"] / 24 < 0.75 * proposed["random"] / 36, (
        proposed
    )  # tpe learns which points are invalid


def test_a_small_space_ends_when_all_of_it_was_tried(home, config):
    """8 points; heads=5 is invalid with dim=32."""
    few = {"attn.heads": [1, 2, 5], "position": ["alibi"]}
    simulated = SimulatedStudy(
        config, factors=few, baseline={"attn.heads": 4, "position": "rotary"}, design={"confirm": 0}
    )
    assert simulated.go() == 0
    facts = simulated.search.facts()
    assert len(simulated.points) == 6 and facts["refused"] >= 2
    assert facts["end"] == "All 8 points of the space were tried or refused."


def test_excluded_points_are_not_tried(home, config):
    few = {"attn.heads": [1, 2], "position": ["alibi"]}
    exclude = [{"attn.heads": 2, "position": "alibi"}]
    base = {"attn.heads": 4, "position": "rotary"}
    simulated = SimulatedStudy(
        config, factors=few, baseline=base, exclude=exclude, design={"confirm": 0}
    )
    assert simulated.go() == 0
    assert len(simulated.points) == 5 and "attn.heads=2, position=alibi" not in {
        p[0] for p in simulated.points
    }


def test_failed_and_diverged_runs_are_recorded_and_tried_again_on_request(home, config):
    simulated = SimulatedStudy(config, design={"trials": 3, "confirm": 0})

    def broken(runs):
        for run in runs:
            code = {0: 3, 1: 1}[len(simulated.trained) % 2]
            simulated.trained.append(run.key)
            summary.write(
                {"code": code, "text": "It broke.", "step": 7},
                simulated.search.plan.directory(run) / summary.ENDED,
            )
        return 0

    run_search(simulated.search, 1, broken, lambda: None)
    assert [p[1] for p in simulated.points] == ["diverged", "failed", "diverged"]
    before = list(simulated.trained)
    simulated.node["retry"], simulated.trained, simulated.search = True, [], simulated.begin()
    assert simulated.go() == 0
    assert simulated.trained == before and [p[1] for p in simulated.points] == ["finished"] * 3


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            {"factors": {**NODE["factors"], "optim.lr": {"low": 1e-4, "high": 1e-2, "log": True}}},
            "another space.",
        ),
        ({"metric": "val/perplexity"}, "another metric."),
        ({"seeds": [7, 8]}, "another seed."),
    ],
)
def test_a_storage_of_another_search_is_refused(home, config, change, fault):
    SimulatedStudy(config)
    with pytest.raises(
        ConfigError, match=rf"^study\.storage: .*search\.journal holds a search 'small' of {fault}"
    ):
        SimulatedStudy(config, **change)
    SimulatedStudy(config, design={"trials": 40})  # more trials are the same search
