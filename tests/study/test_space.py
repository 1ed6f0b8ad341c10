"""Intervals, conditions and the points of a space, by eye; every fault is one sentence."""

import pytest

from tests.messages import messages
from xformer_kit.study import space
from xformer_kit.study.factor import read_factors
from xformer_kit.study.range import FactorRange
from xformer_kit.study.study_node import complete, faults

NODE = {
    "design": {"name": "search"},
    "baseline": {"lr": 0.001, "dim": 8, "ffn": "glu", "ffn.k": 1},
    "factors": {
        "lr": {"low": 1e-4, "high": 1e-2, "log": True},
        "dim": {"low": 4, "high": 16, "step": 4},
        "ffn": ["mlp"],
        "ffn.k": [2, 3],
    },
    "only": {"ffn.k": {"ffn": "mlp"}},
}


def asked(**changes):
    """What is wrong with the node, with keys of its factors and its baseline replaced."""
    factors = {**NODE["factors"], **changes.pop("factors", {})}
    return messages(faults({**NODE, "factors": factors, **changes}))


class Draws:
    """An Optuna trial that answers with the middle of what it is asked for, and remembers it."""

    def __init__(self, **fixed):
        self.fixed, self.asked = fixed, {}

    def _say(self, name, value, said):
        self.asked[name] = said
        return self.fixed.get(name, value)

    def suggest_float(self, name, low, high, step=None, log=False):
        return self._say(name, low + (high - low) / 3, (low, high, step, log))

    def suggest_int(self, name, low, high, step=1, log=False):
        return self._say(name, low + step, (low, high, step, log))

    def suggest_categorical(self, name, choices):
        return self._say(name, choices[-1], tuple(choices))


def test_an_example_space():
    assert asked() == []
    factors, _ = read_factors(NODE)
    assert [f.interval for f in factors.values()] == [
        FactorRange(1e-4, 1e-2, True),
        FactorRange(4, 16, step=4),
        None,
        None,
    ]
    assert factors["dim"].labels() == ["4", "8", "12", "16"] and factors["lr"].labels() is None
    assert factors["lr"].words("0.0123") == ["lr=0.0123"]


def test_a_trial_suggests_only_active_factors():
    factors, _ = read_factors(NODE)
    draws = Draws()
    assert space.suggest_levels(factors, draws) == {
        "lr": "0.0034",
        "dim": "8",
        "ffn": "mlp",
        "ffn.k": "3",
    }
    assert draws.asked["dim"] == (4, 16, 4, False) and draws.asked["ffn.k"] == ("1", "2", "3")
    draws = Draws(ffn="glu")
    assert space.suggest_levels(factors, draws)["ffn.k"] == "1" and "ffn.k" not in draws.asked


def test_parameters_invert_suggested():
    factors, _ = read_factors(NODE)
    levels = {"lr": "0.0034", "dim": "12", "ffn": "mlp", "ffn.k": "2"}
    given = space.optuna_parameters(factors, levels)
    assert given == {"lr": 0.0034, "dim": 12, "ffn": "mlp", "ffn.k": "2"}
    assert space.suggest_levels(factors, Draws(**given)) == levels


def test_points_of_a_small_space_are_counted_once():
    """dim has 4; under ffn=glu there is one ffn.k, under mlp three."""
    small = {**NODE, "factors": {k: v for k, v in NODE["factors"].items() if k != "lr"}}
    factors, _ = read_factors(
        {**small, "baseline": {k: v for k, v in NODE["baseline"].items() if k != "lr"}}
    )
    found = space.all_points(factors)
    assert len(found) == 4 * (1 + 3) and len({tuple(p.values()) for p in found}) == 16
    assert space.all_points(read_factors(NODE)[0]) is None


@pytest.mark.parametrize("value", [0.0001, 0.00123456, 0.01])
def test_drawn_numbers_are_within_the_interval(value):
    between = FactorRange(1e-4, 1e-2, True)
    assert between.contains(between.rounded(value))


@pytest.mark.parametrize(
    ("factor", "fault"),
    [
        (
            {"low": 1e-2, "high": 1e-4},
            ("study.factors.lr.high: must be above low; got low 0.01 and high 0.0001."),
        ),
        (
            {"low": 2, "high": 2},
            "study.factors.lr.high: must be above low; got low 2 and high 2.",
        ),
        (
            {"low": 0, "high": 1, "log": True},
            "study.factors.lr.low: must be above 0; got 0. Raise it, or leave log out.",
        ),
        (
            {"low": 0.1},
            "study.factors.lr.high: settings 'interval' needs this option. Give it a value.",
        ),
        ({"low": 0.1, "high": "x"}, "study.factors.lr.high: must be a number; got 'x'."),
        (
            {"low": 0.1, "high": 1, "hgih": 1},
            "study.factors.lr.hgih: the config has no such key. Did you mean 'high'?",
        ),
        (
            {"low": 1e-4, "high": 1e-2, "log": True, "step": 1e-4},
            "study.factors.lr.step: belongs to an interval without log",
        ),
        (
            {"low": 0.0, "high": 1.0, "step": 0.3},
            "study.factors.lr.step: must be above 0 and divide high - low; got 0.3",
        ),
        (
            {"low": 0.1, "high": 1.0},
            "study.baseline.lr: must be a number of its interval, 0.1 to 1; got 0.001.",
        ),
        (
            {"low": 0, "high": 3},
            "study.baseline.lr: must be a whole number of its interval, 0 to 3; got 0.001.",
        ),
        ([], "study.factors.lr: must list its levels"),
    ],
)
def test_faults_of_an_interval(factor, fault):
    found = asked(factors={"lr": factor})
    assert len(found) == 1 and found[0].startswith(fault), found


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"design": "factorial"},
            "study.factors.lr: is an interval, which only design=search supports.",
        ),
        (
            {"design": {"name": "search", "sampler": "tpee"}},
            "study.design.sampler: no choice is called 'tpee'. Did you mean",
        ),
        (
            {"design": {"name": "search", "pruner": "mean"}},
            "study.design.pruner: no choice is called 'mean'.",
        ),
        (
            {"design": {"name": "search", "trials": 500}},
            "study.max_runs: must hold the runs of the search; got 200",
        ),
        (
            {"design": {"name": "search", "pruner": "none", "whole": 3}},
            "study.design.whole: has no effect with sampler=tpe and pruner=none",
        ),
        (
            {"metric": "test/loss"},
            "study.design.pruner: prunes trials by the metric of each validation, and test/loss",
        ),
        ({"metric": "val/lss"}, "study.metric: it is not known whether 'val/lss' is better"),
        ({"tune": {"optim.lr": [1, 2]}}, "study.tune: a search already tunes its factors"),
        ({"factors": {}, "baseline": {}}, "study.factors: must have at least one factor"),
        (
            {"only": {"ffn.k": {"ffn": "mlp"}, "ffn": {"ffn.k": 2}}},
            "study.only: the conditions of ffn and ffn.k are circular",
        ),
        (  # also if each is met at the other's baseline
            {"only": {"ffn.k": {"ffn": "glu"}, "ffn": {"ffn.k": 1}}},
            "study.only: the conditions of ffn and ffn.k are circular",
        ),
    ],
)
def test_faults_of_a_search(changes, fault):
    found = messages(faults({**NODE, **changes}))
    assert any(one.startswith(fault) for one in found), found


def test_an_option_without_effect_is_refused_if_it_is_not_the_default():
    design = {"name": "search", "sampler": "random", "pruner": "none"}
    assert faults({**NODE, "design": design}) == []
    for option in ("startup", "whole", "warmup"):
        (message,) = messages(faults({**NODE, "design": {**design, option: 11}}))
        assert message.startswith(f"study.design.{option}: has no effect with")


def test_a_storage_belongs_to_a_search():
    node = {
        **NODE,
        "design": None,
        "factors": {"ffn": ["mlp"]},
        "baseline": {"ffn": "glu"},
        "only": None,
    }
    assert messages(faults(node)) == []
    assert messages(faults({**node, "storage": "x"}))[0].startswith(
        "study.storage: belongs to design=search; got x."
    )


def test_integer_and_continuous_steps():
    assert FactorRange(0, 1).values() == [0, 1] and FactorRange(0.0, 1.0).values() is None
    assert FactorRange(0.0, 0.3, step=0.1).values() == [0.0, 0.1, 0.2, 0.3]
    assert complete(NODE, "x")["design"]["trials"] == 30
