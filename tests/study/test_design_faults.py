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
            TWO | {"tune": {"optim.lr": [0.001, 0.001]}},
            "study.tune.optim.lr: names a value twice; got [0.001, 0.001]. Leave one out.",
        ),
        (
            {"factors": {"norm": ["layer"]}},
            "study.baseline: must give every factor its level; got none for 'norm'.",
        ),
        (
            {"factors": {"norm": ["layer", "rms"]}, "baseline": {"norm": "rms"}},
            (
                "study.factors.norm: its level rms equals the baseline, so there is nothing to"
                " compare."
            ),
        ),
        (
            {"factors": {"norm": "layer"}, "baseline": {"norm": "rms"}},
            "study.factors.norm: must list its levels",
        ),
        (
            {"factors": {"norm": ["l2", "l2"]}, "baseline": {"norm": "rms"}},
            "study.factors.norm: has the level l2 twice.",
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
            "study.seeds: must be at least 1; got 0. Try 5, or a list such as [0, 1, 2].",
        ),
        (
            TWO | {"seeds": []},
            "study.seeds: must be at least 1; got []. Try 5, or a list such as [0, 1, 2].",
        ),
        (
            TWO | {"seeds": [1, 1]},
            (
                "study.seeds: must be different numbers; got [1, 1]. A run at one seed twice is one"
                " run."
            ),
        ),
        (
            TWO | {"metric": ""},
            (
                "study.metric: must name a metric of the end of a run; got ''. Leave it out for"
                " val/loss."
            ),
        ),
        (TWO | {"exclude": [{"norm": "rms"}]}, "study.exclude[0]: is the baseline"),
        (
            TWO | {"exclude": [{"norm": "dyt"}]},
            "study.exclude[0].norm: is no level; got dyt. Known: rms, layer.",
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
        (TWO | {"seeds": [0, -1]}, "study.seeds: must be at least 0; got -1."),
        (
            TWO | {"name": "../x"},
            "study.name: must be the name of a directory under outputs/studies; got '../x'.",
        ),
        (
            TWO | {"name": "."},
            "study.name: must be the name of a directory under outputs/studies; got '.'.",
        ),
        (
            {"factors": {"seed": [1]}, "baseline": {"seed": 0}},
            (
                "study.factors.seed: every variant is run at the same seeds, those of study.seeds."
                " Leave it out"
            ),
        ),
        (
            TWO | {"tune": {"seed": [1, 2]}},
            "study.tune.seed: every variant is run at the same seeds",
        ),
        (
            {
                "factors": {"ffn.width": [32]},
                "baseline": {"ffn.width": 64},
                "budget": {"match": "params"},
            },
            (
                "study.budget.by: ffn.width is adjusted to match parameters, which would override"
                " study.factors.ffn.width; got 'ffn.width'. Adjust another key, or"
                " study.budget.match=none."
            ),
        ),
        (
            TWO | {"tune": {"trainer.max_steps": [4, 8]}, "budget": {"match": "tokens"}},
            (
                "study.budget.by: trainer.max_steps is adjusted to match tokens, which would"
                " override study.tune.trainer.max_steps; got 'trainer.max_steps'. Adjust another"
                " key, or study.budget.match=none."
            ),
        ),
        (
            {
                "factors": {"f": {"x": {"ffn": {"name": "mlp", "width": 3}}}},
                "baseline": {"f": {"ffn": "glu"}},
            }
            | {"budget": {"match": "params"}},
            (
                "study.budget.by: ffn.width is adjusted to match parameters, which would override"
                " study.factors.f;"
            ),
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
    with pytest.raises(ConfigError, match="nothing to compare"):
        levels_of(complete({"factors": {"norm": ["rms"]}, "baseline": {"norm": "rms"}}, "name"))
    assert messages(read_factors({"factors": 3})[1]) == [
        "study.factors: must be a mapping of factors; got 3."
    ]


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
