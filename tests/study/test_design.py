"""Which variants does a design choose? By eye, on two factors and a condition."""

import pytest

from tests.messages import messages
from xformer_kit.study.plan import words_of
from xformer_kit.study.study_node import complete, faults, label, levels_of
from xformer_kit.text.command_lines import override_text

TWO = {
    "baseline": {"norm": "rms", "placement": "pre"},
    "factors": {"norm": ["layer"], "placement": ["post", "output"]},
}
SCORES = {
    "baseline": {"attn.score": "softmax", "attn.score.alpha": 1.5},
    "factors": {"attn.score": ["entmax"], "attn.score.alpha": [1.25]},
    "only": {"attn.score.alpha": {"attn.score": "entmax"}},
}


def chosen(node, design="one_at_a_time") -> list[str]:
    factors, levels = levels_of(complete(node | {"design": design}, "name"))
    return [label(factors, one) for one in levels]


def test_one_at_a_time():
    assert chosen(TWO) == ["baseline", "norm=layer", "placement=post", "placement=output"]


def test_pairs_are_single_changes_and_pairs_of_changes():
    assert chosen(TWO, "pairs") == [
        *chosen(TWO),
        "norm=layer, placement=post",
        "norm=layer, placement=output",
    ]


def test_factorial_is_all_combinations():
    assert set(chosen(TWO, "factorial")) == set(chosen(TWO, "pairs"))
    assert len(chosen(TWO, "factorial")) == 2 * 3


@pytest.mark.parametrize("seed", [0, 1])
def test_random_is_a_sample_without_repetition(seed):
    found = chosen(TWO, {"name": "random", "count": 3, "seed": seed})
    assert (
        found[0] == "baseline"
        and len(set(found)) == 4
        and set(found) <= set(chosen(TWO, "factorial"))
    )
    assert len(chosen(TWO, {"name": "random", "count": 5})) == 6  # all


def test_a_sample_larger_than_the_space_is_the_space():
    assert {*chosen(TWO, {"name": "random", "count": 6})} == {*chosen(TWO, "factorial")}


def test_a_fraction_contains_the_baseline_and_is_balanced():
    """2^(5-1) of resolution 5: every two levels of two factors come equally often."""
    names = "abcde"
    node = {"baseline": dict.fromkeys(names, 0), "factors": {name: [1] for name in names}}
    _, levels = levels_of(
        complete(node | {"design": {"name": "fractional", "resolution": 5}}, "name")
    )
    assert levels[0] == dict.fromkeys(names, "0") and len(levels) == 16
    for a in names:
        for b in names:
            if a < b:
                together = [(one[a], one[b]) for one in levels]
                assert all(
                    together.count(pair) == 4
                    for pair in (("0", "0"), ("0", "1"), ("1", "0"), ("1", "1"))
                )


@pytest.mark.parametrize(
    ("factors", "reason"),
    [
        ({"a": [1], "b": [1, 2], "c": [1]}, "got 3 factors, with several levels of b."),
        ({"a": [1], "b": [1]}, "got 2 factors, with several levels of none."),
    ],
)
def test_factors_that_a_fraction_does_not_support(factors, reason):
    node = {"factors": factors, "baseline": dict.fromkeys(factors, 0), "design": "fractional"}
    (fault,) = messages(faults(node))
    assert fault.startswith("study.design: 'fractional'") and reason in fault


@pytest.mark.parametrize(
    ("count", "resolution", "runs"),
    [(3, 3, 4), (3, 4, 8), (4, 4, 8), (4, 5, 16), (5, 5, 16)],
)
def test_the_size_of_a_fraction(count, resolution, runs):
    """Box, Hunter and Hunter, 2005, chapter 6: 2^(3-1) is of resolution III, 2^(4-1) of IV, 2^(5-1)
    of V.
    """
    names = "abcde"[:count]
    node = {"baseline": dict.fromkeys(names, 0), "factors": {name: [1] for name in names}}
    node |= {"design": {"name": "fractional", "resolution": resolution}}
    assert not faults(node) and len(levels_of(complete(node, "name"))[1]) == runs


def test_a_condition_sets_the_levels_it_requires():
    """alpha is an option only of entmax: changed by itself, it selects entmax, and with softmax
    nothing is said of it.
    """
    assert chosen(SCORES) == [
        "baseline",
        "attn.score=entmax",
        "attn.score=entmax, attn.score.alpha=1.25",
    ]
    assert chosen(SCORES, "factorial") == chosen(SCORES)
    factors, levels = levels_of(complete(SCORES, "name"))
    assert [words_of(factors, one) for one in levels] == [
        ["attn.score=softmax"],
        ["attn.score=entmax", "attn.score.alpha=1.5"],
        ["attn.score=entmax", "attn.score.alpha=1.25"],
    ]


def test_excluded_combinations_are_not_run():
    node = TWO | {
        "design": "factorial",
        "exclude": [{"norm": "layer", "placement": "post"}, {"placement": "output"}],
    }
    assert chosen(node, "factorial") == ["baseline", "placement=post", "norm=layer"]


def test_a_level_may_be_several_overrides_with_a_label():
    node = {
        "factors": {
            "shape": {"wide": {"model.dim": 64, "model.layers": 1}, "deep": {"model.layers": 4}}
        },
        "baseline": {"shape": {"model.layers": 2}},
    }
    assert messages(faults(node)) == [] and chosen(node) == ["baseline", "shape=wide", "shape=deep"]
    factors, levels = levels_of(complete(node, "name"))
    assert words_of(factors, levels[1]) == ["model.dim=64", "model.layers=1"]


def test_a_baseline_may_name_a_labelled_level():
    sizes = {"wide": {"model.dim": 64}, "deep": {"model.layers": 8}}
    node = complete({"factors": {"size": sizes}, "baseline": {"size": "deep"}}, "name")
    factors, levels = levels_of(node)
    assert messages(faults(node)) == [] and levels == [{"size": "deep"}, {"size": "wide"}]
    assert [words_of(factors, one) for one in levels] == [["model.layers=8"], ["model.dim=64"]]
    (fault,) = messages(faults(node | {"baseline": {"size": "small"}}))
    assert fault.startswith(
        "study.baseline.size: must be one of wide, deep, or a mapping of overrides like them"
    )
    (fault,) = messages(faults(node | {"factors": {"size": {"deep": {"model.layers": 8}}}}))
    assert fault == "study.factors.size: has no level but the baseline's, deep. Add another."


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"),
        (True, "true"),
        (1e-3, "0.001"),
        ("a b", "'a b'"),
        ([1, "x"], "[1,x]"),
        ("it's", "'it\\'s'"),
        ({"name": "rotary", "theta": 100.0}, "{name:rotary,theta:100.0}"),
    ],
)
def test_values_are_written_as_hydra_reads_them(value, written):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert override_text(value) == written
    assert OverridesParser.create().parse_override(f"key={written}").value() == value


@pytest.mark.parametrize("value", ["a\\b c", "ends \\", "it's \\'", "\\\\ two"])
def test_backslashes_are_kept(value):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert OverridesParser.create().parse_override(f"key={override_text(value)}").value() == value


def test_a_sample_has_no_excluded_combinations():
    """Ten combinations of one of six levels with one of two; without the baseline's own placement
    five are left.
    """
    node = {
        "baseline": {"a": 0, "b": 0},
        "factors": {"a": [1, 2, 3, 4, 5], "b": [1]},
        "exclude": [{"b": 1}],
    }
    for count in (3, 5):
        _, found = levels_of(
            complete(node | {"design": {"name": "random", "count": count}}, "name")
        )
        assert len(found) == 1 + count and all(levels["b"] == "0" for levels in found)


def test_circular_conditions_are_refused():
    node = TWO | {"only": {"norm": {"placement": "post"}, "placement": {"norm": "layer"}}}
    assert messages(faults(node)) == [
        "study.only: the conditions of norm and placement are circular, so none can leave its"
        " baseline. Leave one out."
    ]
    at_home = TWO | {
        "only": {"norm": {"placement": "pre"}, "placement": {"norm": "rms"}}
    }  # each where the other did not
    assert not faults(at_home) and len(chosen(at_home, "factorial")) == 4
