"""Whether a published claim held: every expectation against every outcome of the runs."""

import numpy as np
import pytest

from tests.messages import messages
from xformer_kit.registry import ConfigError
from xformer_kit.study.answer import Runs
from xformer_kit.study.claim import evaluate, faults
from xformer_kit.study.metric import metric

LOSS, ACCURACY = metric("val/loss"), metric("val/accuracy")
SEEDS = range(5)
BASE = {seed: 2.0 + 0.3 * seed for seed in SEEDS}


def moved(name, *differences):
    return Runs(name, {seed: BASE[seed] + d for seed, d in enumerate(differences)})


GONE = Runs("gone", {}, diverged=dict.fromkeys(SEEDS, 10))
RUNS = {
    runs.name: runs
    for runs in (
        Runs("baseline", BASE),
        moved("worse", 0.028, 0.029, 0.03, 0.031, 0.032),
        moved("better", -0.028, -0.029, -0.03, -0.031, -0.032),
        moved("noisy", -0.02, 0.02, 0.01, -0.01, 0.005),
        moved("alone", 0.5),
        Runs("same", dict(BASE)),
        GONE,
    )
}
H, N, O = "held", "not held", "inconclusive"  # noqa: E741


def outcome(variant, relation, margin=None, than="baseline", measured=LOSS):
    return evaluate(
        {"variant": variant, "is": relation, "than": than}, RUNS, measured, margin=margin
    ).outcome


@pytest.mark.parametrize(
    (
        "variant",
        "worse",
        "better",
        "equal",
        "equal_within",
        "no_worse",
        "no_worse_within",
    ),  # margin 0.05
    [
        ("worse", H, N, N, H, N, H),
        ("better", N, H, N, H, H, H),
        ("noisy", O, O, O, H, O, H),
        ("same", O, O, O, H, O, H),
        ("alone", O, O, O, O, O, O),
        ("gone", H, N, N, N, N, N),
    ],
)
def test_every_expectation_against_every_outcome(
    variant, worse, better, equal, equal_within, no_worse, no_worse_within
):
    assert outcome(variant, "worse") == worse and outcome(variant, "better") == better
    assert (
        outcome(variant, "equal") == equal
        and outcome(variant, "equal", margin=0.05) == equal_within
    )
    assert (
        outcome(variant, "no_worse") == no_worse
        and outcome(variant, "no_worse", margin=0.05) == no_worse_within
    )


def test_a_margin_that_is_too_small():
    assert outcome("noisy", "equal", margin=0.001) == O  # too few seeds for so small a margin
    assert outcome("worse", "equal", margin=0.01) == N  # the whole interval lies outside
    assert (
        outcome("worse", "equal", margin=0.029) == O
    )  # the margin lies in the interval, 0.028 to 0.032
    assert (
        outcome("noisy", "no_worse", margin=0.001)
        == outcome("worse", "no_worse", margin=0.029)
        == O
    )
    assert outcome("worse", "no_worse", margin=0.01) == N
    assert (
        outcome("better", "equal", margin=0.01) == N
        and outcome("better", "no_worse", margin=0.01) == H
    )


def test_a_metric_where_higher_is_better():
    assert (
        outcome("worse", "better", measured=ACCURACY) == H
        and outcome("worse", "worse", measured=ACCURACY) == N
    )
    assert outcome("worse", "no_worse", 0.01, measured=ACCURACY) == H
    assert outcome("better", "no_worse", 0.01, measured=ACCURACY) == N


def test_two_variants_may_be_compared_with_each_other():
    assert outcome("better", "better", than="worse") == H
    assert outcome("worse", "better", than="gone") == H  # the other one diverges
    assert outcome("worse", "no_worse", 0.01, than="gone") == H
    found = evaluate({"variant": "worse", "is": "worse", "than": "better"}, RUNS, LOSS)
    assert found.outcome == H and found.differences[0].mean == pytest.approx(0.06)


def test_a_variant_that_diverges_significantly_more_often_is_worse():
    """Fisher's exact p of five of five against none, 2 / 252, twice: figures could have decided
    too.
    """
    found = evaluate({"variant": "gone", "is": "worse"}, RUNS, LOSS)
    assert found.ps == (pytest.approx(4 / 252),)
    assert found.sentence.startswith(
        "The claim held. gone is worse than baseline because it diverges more often (p = 0.016). 5"
        " of 5 runs of gone diverged ("
    )
    two = {
        "baseline": RUNS["baseline"],
        "x": Runs("x", {0: 2.01, 1: 2.29, 2: 2.6}, diverged={3: 5, 4: 5}),
    }
    assert evaluate({"variant": "x", "is": "worse"}, two, LOSS).outcome == O


def test_with_two_tests_the_smaller_p_is_doubled():
    lost = Runs("lost", RUNS["worse"].values, diverged={7: 10})
    found = evaluate({"variant": "lost", "is": "worse"}, RUNS | {"lost": lost}, LOSS)
    assert found.ps[0] == pytest.approx(2 * found.differences[0].p)


def test_tests_that_disagree_decide_nothing():
    """It diverges at half of twelve seeds, and is better at the others."""
    base = Runs("baseline", {seed: 2.0 + seed for seed in range(12)})
    values = {seed: base.values[seed] - 0.1 - 0.001 * seed for seed in range(6)}
    both = {"baseline": base, "x": Runs("x", values, diverged=dict.fromkeys(range(6, 12), 3))}
    for way in ("better", "worse"):
        assert evaluate({"variant": "x", "is": way}, both, LOSS).outcome == O


def test_several_expectations_are_one_claim():
    def all_of(*pairs):
        return evaluate([{"variant": v, "is": way} for v, way in pairs], RUNS, LOSS).outcome

    assert all_of(("worse", "worse"), ("better", "better")) == H
    assert all_of(("worse", "worse"), ("noisy", "better")) == O
    assert all_of(("worse", "better"), ("noisy", "better")) == N
    one, three = (
        evaluate([{"variant": "worse", "is": "worse"}] * n, RUNS, LOSS).ps[0] for n in (1, 3)
    )
    assert three == pytest.approx(3 * one)


def test_sentences():
    assert (
        evaluate({"variant": "worse", "is": "better"}, RUNS, LOSS).sentence
        == "The claim did not hold. worse is worse than baseline by 0.0300 nats "
        "(95 % CI 0.0280 to 0.0320, 5 seeds, p < 0.0001)."
    )
    open_ = evaluate({"variant": "noisy", "is": "equal"}, RUNS, LOSS, margin=0.001).sentence
    assert open_.startswith(
        "The claim is inconclusive. The difference between noisy and baseline is not significant ("
    )
    assert "p = 0.9)" in open_ and " seeds would detect 0.001 nats" in open_
    # The difference is significant; whether it exceeds the margin is not.
    assert (
        evaluate({"variant": "worse", "is": "equal"}, RUNS, LOSS, margin=0.029).sentence
        == "The claim is inconclusive. worse is worse than baseline by 0.0300 nats (95 %"
        " CI 0.0280 to 0.0320, 5 seeds, p < 0.0001). Whether it exceeds the margin of 0.029 nats is"
        " inconclusive."
    )


def test_sentences_of_no_worse():
    """Better, worse by less than the margin, or neither."""
    found = {
        name: (
            evaluate(
                {"variant": name, "is": "no_worse"}, RUNS, LOSS, margin=0.05
            ).sentence.removeprefix("The claim held. ")
        )
        for name in ("better", "worse", "noisy")
    }
    assert (
        found["better"]
        == "better is better than baseline by 0.0300 nats (95 % CI 0.0280 to 0.0320, 5 seeds, p <"
        " 0.0001)."
    )
    assert (
        found["worse"]
        == "worse is worse than baseline by 0.0300 nats (95 % CI 0.0280 to 0.0320, 5 seeds, p <"
        " 0.0001), but within the margin of 0.05 nats."
    )
    assert found["noisy"].startswith(
        "noisy is non-inferior to baseline within the margin of 0.05 nats (difference 0.001 nats, "
    )
    assert found["noisy"].endswith("5 seeds; non-inferiority test, p = 0.0012).")


@pytest.mark.extended
def test_false_positive_rate_of_no_worse_is_alpha():
    rng, draws = np.random.default_rng(0), 800
    alarms = 0
    for x in rng.normal(size=(draws, 2, 5)) + [[0.0], [1.0]]:
        runs = {
            name: Runs(name, dict(enumerate(row)))
            for name, row in zip(("baseline", "x"), x, strict=True)
        }
        alarms += evaluate({"variant": "x", "is": "no_worse"}, runs, LOSS, margin=1.0).outcome == H
    assert abs(alarms / draws - 0.05) <= 3 * (0.05 * 0.95 / draws) ** 0.5


@pytest.mark.extended
def test_false_positive_rate_of_a_direction_is_half_of_alpha():
    """Both sides together are wrong in 5 of 100: a false claim of one side holds in half of
    them.
    """
    rng, draws = np.random.default_rng(0), 800
    alarms = 0
    for x in rng.normal(size=(draws, 2, 5)):
        runs = {
            name: Runs(name, dict(enumerate(row)))
            for name, row in zip(("baseline", "x"), x, strict=True)
        }
        alarms += evaluate({"variant": "x", "is": "worse"}, runs, LOSS).outcome == H
    assert alarms / draws <= 0.025 + 3 * (0.025 * 0.975 / draws) ** 0.5


@pytest.mark.parametrize(
    ("expect", "expected"),
    [
        (
            "post is worse",
            [
                "study.claim.expect: must be {variant: ..., is: worse|better|equal|no_worse, than:"
                " ...}; got post is worse."
            ],
        ),
        (
            {"variant": ["worse"], "is": "worse"},
            [
                (
                    "study.claim.expect.variant: no variant is called ['worse']. Known:"
                    " baseline, worse."
                )
            ],
        ),
        (
            {"variant": "wors", "is": "bad"},
            [
                (
                    "study.claim.expect.variant: no variant is called 'wors'. Did you mean 'worse'?"
                    " Known: baseline, worse."
                ),
                "study.claim.expect: must be {variant: ..., is: worse|better|equal|no_worse, than:"
                " ...}, with two variants; got {variant: 'wors', is: 'bad'}.",
            ],
        ),
        (
            [{"variant": "worse", "is": "worse"}, {"variant": "baseline", "is": "worse"}],
            [
                "study.claim.expect[1]: must be {variant: ..., is: worse|better|equal|no_worse,"
                " than: ...}, with two variants; got {variant: 'baseline', is: 'worse'}."
            ],
        ),
    ],
)
def test_all_faulty_expectations_are_refused_at_once(expect, expected):
    known = ["baseline", "worse"]
    assert messages(faults(expect, known)) == expected
    with pytest.raises(ConfigError) as raised:
        evaluate(expect, {name: RUNS[name] for name in known}, LOSS)
    assert raised.value.messages == tuple(expected)
