"""What is said of a question that cannot be asked: one sentence for each fault."""

import pytest

from tests.messages import messages
from xformer_kit.registry import ConfigError
from xformer_kit.study.factor import read_factors
from xformer_kit.study.study_node import complete, faults, levels_of

TWO = {
    "baseline": {"norm": "rms", "placement": "pre"},
    "factors": {"norm": ["layer"], "placement": ["post", "output"]},
}


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        ({}, "study.factors: must have at least one factor; got none."),
        (
            {"study": dict(TWO)},
            "study.study: the config has no such key.",
        ),
        (
            {"factors": {"norm": ["layer"]}},
            "study.baseline: must give every factor its level; got none for 'norm'.",
        ),
        (
            {"factors": {"norm": ["rms"]}, "baseline": {"norm": "rms"}},
            "study.factors.norm: has no level but the baseline's, rms. Add another.",
        ),
        (
            {"factors": {"norm": "layer"}, "baseline": {"norm": "rms"}},
            "study.factors.norm: must list its levels",
        ),
        (
            TWO | {"baseline": TWO["baseline"] | {"nrm": 1}},
            "study.baseline.nrm: is no factor. Did you mean 'norm'?",
        ),
        (TWO | {"design": "grid"}, "study.design: 'grid' is called 'factorial' here."),
        (
            TWO | {"design": {"name": "random", "count": 0}},
            "study.design.count: must be at least 1; got 0.",
        ),
        (
            TWO | {"seeds": 0},
            "study.seeds: must be their number, or different numbers from 0 on; got 0. Try 5, or",
        ),
        (
            TWO | {"seeds": []},
            "study.seeds: must be their number, or different numbers from 0 on; got []. Try 5, or",
        ),
        (
            TWO | {"seeds": [1, 1]},
            "study.seeds: must be their number, or different numbers from 0 on; got [1, 1]. Try 5",
        ),
        (
            TWO | {"metric": ""},
            "study.metric: it is not known whether '' is better higher or lower.",
        ),
        (TWO | {"exclude": [{"norm": "rms"}]}, "study.exclude[0]: is the baseline"),
        (
            TWO | {"exclude": [{"norm": "dyt"}]},
            "study.exclude[0].norm: must be a factor with one of its levels; got dyt. Known: rms,",
        ),
        (TWO | {"budget": {"match": "size"}}, "study.budget.match: no choice is called 'size'."),
        (
            TWO | {"budget": {"match": "tokens", "by": "ffn.width"}},
            "study.budget.by: must be a key that match=tokens can adjust; got 'ffn.width'.",
        ),
        (TWO | {"tune": {"optim.lr": [1e-3]}}, "study.tune.optim.lr: must list two values or more"),
        (
            TWO | {"only": {"norm": {"mask": "causal"}}},
            "study.only.norm.mask: must be another factor of the study",
        ),
        (
            TWO | {"only": {"norm": {"norm": "rms"}}},
            "study.only.norm.norm: must be another factor of the study",
        ),
        (
            TWO | {"only": {"norm": {}}},
            "study.only.norm: must name a factor and the levels of another",
        ),
        (
            TWO
            | {
                "factors": TWO["factors"] | {"ffn": ["mlp"]},
                "baseline": TWO["baseline"] | {"ffn": "glu"},
            }
            | {"only": {"norm": {"ffn": []}}},
            "study.only.norm.ffn: must be a level of that factor; got none. Known: glu, mlp.",
        ),
        (TWO | {"sedes": 3}, "study.sedes: the config has no such key. Did you mean 'seeds'?"),
        (
            TWO | {"seeds": [0, -1]},
            "study.seeds: must be their number, or different numbers from 0 on; got [0, -1].",
        ),
        (
            TWO | {"name": "../x"},
            "study.name: must be the name of a directory under outputs/studies; got '../x'.",
        ),
        (
            TWO | {"name": "."},
            "study.name: must be the name of a directory under outputs/studies; got '.'.",
        ),
        (TWO | {"margin": -1.0}, "study.margin: must be above 0; got -1.0."),
    ],
)
def test_each_fault_of_a_study_has_one_message(node, fault):
    found = messages(faults(node))
    assert len(found) == 1 and found[0].startswith(fault), found


def test_a_factor_has_one_name():
    _, found = read_factors({"factors": {"placment": ["post"]}, "baseline": {"placement": "pre"}})
    missing, unknown = messages(found)
    assert missing.startswith("study.baseline: must give every factor its level; got none for 'pla")
    assert unknown.startswith("study.baseline.placement: is no factor. Did you mean 'placment'?")


def test_faults_are_raised_before_variants_are_chosen():
    with pytest.raises(ConfigError, match="no level but the baseline's"):
        levels_of(complete({"factors": {"norm": ["rms"]}, "baseline": {"norm": "rms"}}, "name"))


def test_a_factor_may_list_its_baseline_too():
    """It is one level, also if it is listed twice."""
    node = {"factors": {"norm": ["layer", "rms", "layer"]}, "baseline": {"norm": "rms"}}
    assert not faults(node)
    assert levels_of(complete(node, "name"))[1] == [{"norm": "rms"}, {"norm": "layer"}]


def test_a_study_without_variants_is_refused():
    """Else its report would be written over by one that compares nothing."""
    with pytest.raises(
        ConfigError, match=r"^study\.exclude: leaves no variant other than the baseline\. "
    ):
        levels_of(
            complete(
                TWO
                | {
                    "exclude": [
                        {name: level} for name, levels in TWO["factors"].items() for level in levels
                    ]
                },
                "x",
            )
        )
