"""The sequential test: its evidence against integrals, its error rates by simulation."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import nct, t

from xformer_kit.study.sequential import (
    MAX_PAIRS,
    PRIORS,
    always_valid_interval,
    decide,
    log_evidence,
    pairs_to_decide,
    threshold,
)
from xformer_kit.study.statistics import ALPHA, Estimate


def evidence_at_each_look(x: np.ndarray) -> np.ndarray:
    """(draws, looks) from two pairs on."""
    count = np.arange(1, x.shape[1] + 1)
    mean = np.cumsum(x, 1) / count
    sd = np.sqrt((np.cumsum(x * x, 1) - count * mean**2) / np.maximum(1, count - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = (mean / sd) ** 2 * count
    return np.stack(
        [
            [math.exp(log_evidence(float(value), int(n))) for value in squares[:, n - 1]]
            for n in count[1:]
        ],
        1,
    )


@pytest.mark.parametrize("count", [2, 5, 30])
@pytest.mark.parametrize("value", [0.0, 1.0, 4.0])
def test_the_evidence_is_a_ratio_of_densities_of_t(count, value):
    """E_g is the density of t, averaged over effects drawn from N(0, g), by that without effect."""

    def averaged(g: float) -> float:
        def weighted(effect: float) -> float:
            prior = math.exp(-(effect**2) / (2 * g)) / math.sqrt(2 * math.pi * g)
            return float(nct.pdf(value, count - 1, effect * math.sqrt(count))) * prior

        limit = 6 * math.sqrt(g) if value == 0 else 3 + 3 * value
        return quad(weighted, -limit, limit, limit=200)[0]

    g = PRIORS[0]
    shrunk, share = 1 + count * g, value**2 / (count - 1)
    of_one = shrunk**-0.5 * ((1 + share) / (1 + share / shrunk)) ** (count / 2)
    assert of_one == pytest.approx(averaged(g) / float(t.pdf(value, count - 1)), rel=2e-3)
    others = [
        (1 + count * h) ** -0.5 * ((1 + share) / (1 + share / (1 + count * h))) ** (count / 2)
        for h in PRIORS
    ]
    assert math.exp(log_evidence(value**2, count)) == pytest.approx(np.mean(others))


def test_without_an_effect_the_evidence_rarely_exceeds_its_bound_at_any_look():
    """And for every variance. Without the factor (1 + n g)^(-1/2), most draws exceed it."""
    draws = 1500
    x = np.random.default_rng(0).normal(0, 1, (draws, 60)) * 10.0 ** np.arange(draws)[:, None].clip(
        0, 4
    )
    exceeded = (evidence_at_each_look(x) >= 1 / ALPHA).any(1).mean()
    assert exceeded <= ALPHA


def test_an_effect_is_found_and_its_interval_contains_it_at_all_looks():
    generator = np.random.default_rng(1)
    kept = covered = 0
    for _ in range(300):
        x = generator.normal(2.0, 1.0, 20)
        looks = [always_valid_interval(x[:n]) for n in range(2, 21)]
        known = [look for look in looks if look.low is not None]
        covered += all(look.low <= 2.0 <= look.high for look in known)
        kept += decide(known[-1], sign=-1) == "keep"
    assert covered >= 300 * (1 - ALPHA) and kept == 300


@pytest.mark.parametrize("count", [3, 10, 100])
def test_the_interval_ends_where_the_evidence_reaches_its_bound(count):
    x = np.random.default_rng(count).normal(1.0, 1.0, count)
    found = always_valid_interval(x)
    for bound in (found.low, found.high):
        statistic = (x.mean() - bound) / (x.std(ddof=1) / math.sqrt(count))
        assert log_evidence(statistic**2, count) == pytest.approx(math.log(1 / ALPHA))


def test_few_pairs_decide_nothing():
    assert always_valid_interval([]) == Estimate(None, None, None)
    assert always_valid_interval([0.3, 0.3]) == Estimate(0.3, None, None)
    assert threshold(2) == math.inf and threshold(3) < math.inf
    assert decide(Estimate(0.3, None, None), sign=-1) == "undecided"


@pytest.mark.parametrize(
    ("low", "high", "effect", "decision"),
    [
        (-0.3, -0.1, 0.0, "keep"),  # of losses: lower is better
        (0.1, 0.3, 0.0, "discard"),
        (-0.2, 0.1, 0.0, "undecided"),
        (-0.2, 0.1, 0.3, "discard"),  # an improvement of 0.3 is excluded
        (-0.3, -0.1, 0.2, "keep"),
        (-0.3, -0.1, 0.5, "discard"),  # better, by less than what matters
    ],
)
def test_decisions(low, high, effect, decision):
    mean = (low + high) / 2
    assert decide(Estimate(mean, low, high), sign=1, effect=effect) == decision
    assert decide(Estimate(-mean, -high, -low), sign=-1, effect=effect) == decision


def test_the_pairs_that_would_decide():
    x = [0.0, 0.1, 0.2, 0.1]  # worse by 0.1 +- 0.08
    needed = pairs_to_decide(x, sign=1)
    mean, sd = 0.1, float(np.std(x, ddof=1))
    halves = {n: threshold(n) * sd / math.sqrt(n) for n in (needed - 1, needed)}
    assert halves[needed] < mean <= halves[needed - 1]
    assert pairs_to_decide([0.1], sign=1) is None
    assert pairs_to_decide([-1.0, 1.0, 0.0], sign=1) is None  # no number of pairs
    assert threshold(MAX_PAIRS) < 10
