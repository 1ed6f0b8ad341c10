"""Statistics of a few seeds: against textbooks, scipy and statsmodels, and by simulation.

A simulated rate has to lie within three standard errors of what it should be: sqrt(rate (1 - rate)
/ draws) each.
"""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_paired

from xformer_kit.study import statistics
from xformer_kit.study.statistics import (
    band,
    divergence_p,
    equivalence_p,
    hedges_correction,
    holm,
    interval,
    one_sided_p,
    paired_difference,
)

# Hours of sleep that two drugs gained ten patients, the first data of the t test (Student, 1908).
DEXTRO = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
LAEVO = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def by_seed(values):
    return dict(enumerate(map(float, values)))


def against_zero(differences):
    return paired_difference(
        dict.fromkeys(range(len(differences)), 0.0), by_seed(differences), scale=1.0
    )


def near(rate, wanted, draws):
    """Within three standard errors."""
    return abs(rate - wanted) <= 3 * math.sqrt(wanted * (1 - wanted) / draws)


def at_most(rate, wanted, draws):
    return rate <= wanted + 3 * math.sqrt(wanted * (1 - wanted) / draws)


# Known answers.


def test_an_interval_by_hand():
    found = interval([1, 2, 3])
    assert (found.mean, found.sd, found.count) == (2, 1, 3)
    assert (
        found.high - 2
        == pytest.approx(2 - found.low)
        == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    )


def test_an_interval_of_one_run_or_none_has_no_bounds():
    assert interval([7.0]) == (one := interval([7.0])) and (
        one.mean,
        one.low,
        one.high,
        one.sd,
    ) == (
        7,
        None,
        None,
        None,
    )
    assert (interval([]).mean, interval([]).count) == (None, 0)


def test_the_sleep_data_of_student_give_the_published_t_and_p():
    """t = 4.0621, p = 0.002833, interval 0.7001 to 2.4599: as in every textbook, and in R's help of
    t.test.
    """
    found = paired_difference(by_seed(DEXTRO), by_seed(LAEVO))
    assert (found.mean, found.count, found.method) == (pytest.approx(1.58), 10, "t")
    assert found.p == pytest.approx(0.002833, abs=5e-7)
    assert (found.low, found.high) == (
        pytest.approx(0.7001142, abs=1e-6),
        pytest.approx(2.4598858, abs=1e-6),
    )


@pytest.mark.parametrize("count", [2, 7, 19])
def test_a_paired_difference_is_that_of_scipy(count):
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, count))
    found, expected = (
        paired_difference(by_seed(before), by_seed(after)),
        stats.ttest_rel(after, before),
    )
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))


def test_only_seeds_in_common_are_compared():
    found = paired_difference({1: 1.0, 2: 2.0, 3: 3.0, 9: 99.0}, {3: 3.5, 2: 2.7, 1: 1.6, 8: -99.0})
    assert found.count == 3 and found.mean == pytest.approx(0.6)


def test_the_effect_by_hand():
    """Differences 1, 2, 3: d = 2, and J at two degrees of freedom is Gamma(1) / Gamma(1/2) = 1 /
    sqrt(pi).
    """
    assert against_zero([1, 2, 3]).effect == pytest.approx(2 / math.sqrt(math.pi))
    assert hedges_correction(51) == pytest.approx(
        1 - 3 / (4 * 50 - 1), abs=1e-4
    )  # the usual approximation


def test_holm_by_hand():
    assert holm([0.01, None, 0.04, 0.03]) == [
        pytest.approx(0.03),
        None,
        pytest.approx(0.06),
        pytest.approx(0.06),
    ]
    assert holm([None]) == [None] and holm([]) == [] and holm([0.9, 0.8]) == [1, 1]


@pytest.mark.extended
@pytest.mark.parametrize("count", [1, 2, 7])
def test_holm_is_that_of_statsmodels(count):
    ps = [float(p) for p in np.random.default_rng(count).uniform(0, 0.3, count)]
    assert holm(ps) == pytest.approx(list(multipletests(ps, method="holm")[1]))


def test_fishers_exact_test_of_the_lady_tasting_tea():
    """Three of four cups told right, against one of four: p = 0.4857 (Fisher, 1935). All of five
    against none: 2 / C(10, 5).
    """
    assert divergence_p((1, 4), (3, 4)) == pytest.approx(34 / 70)
    assert divergence_p((0, 5), (5, 5)) == pytest.approx(2 / 252)
    assert divergence_p((2, 5), (2, 5)) == pytest.approx(1)


@pytest.mark.parametrize("margin", [0.3, 1.0, 2.0])
def test_equivalence_is_that_of_statsmodels(margin):
    rng = np.random.default_rng(1)
    before, after = rng.normal(size=(2, 8))
    wanted = ttost_paired(after, before, -margin, margin)[0]
    found = paired_difference(by_seed(before), by_seed(after))
    assert equivalence_p(found, margin) == pytest.approx(wanted)
    for sign in (1, -1):
        one_sided = stats.ttest_1samp(sign * (after - before), margin, alternative="less").pvalue
        assert one_sided_p(found, margin, sign) == pytest.approx(one_sided)


# Where little can be known.


def test_one_seed_gives_a_difference_without_interval():
    found = paired_difference({3: 1.0}, {3: 1.5})
    assert found.mean == 0.5 and found.method == "one seed"
    assert (found.low, found.high, found.p, found.effect, found.sd) == (
        None,
    ) * 5 and equivalence_p(found, 1.0) is None


def test_without_a_common_seed_there_is_no_result():
    found = paired_difference({1: 1.0}, {2: 1.0})
    assert (found.mean, found.count, found.method) == (None, 0, "no seed")


def test_equal_values_have_no_difference():
    found = paired_difference(by_seed([1, 2, 3]), by_seed([1, 2, 3]))
    assert (found.mean, found.low, found.high, found.p, found.method) == (0, 0, 0, 1, "equal")


@pytest.mark.parametrize("other", [0.3, 0.1 + 0.2])
def test_rounding_is_no_difference(other):
    assert (
        paired_difference(
            dict.fromkeys(range(4), 0.1 + 0.2), {0: other, 1: 0.3, 2: 0.3, 3: 0.1 + 0.2}
        ).method
        == "equal"
    )


def test_the_same_difference_at_every_seed_has_the_p_of_a_sign_test():
    """All n signs agree in 2 of the 2^n equally likely ways: however large the difference, four
    seeds are not enough.
    """
    found = paired_difference(dict.fromkeys(range(4), 1.0), dict.fromkeys(range(4), 0.0))
    assert (found.mean, found.p, found.method) == (-1, 2 / 2**4, "sign")
    assert (found.low, found.high, found.effect) == (None,) * 3
    assert found.p == pytest.approx(stats.binomtest(0, 4).pvalue)
    assert equivalence_p(found, 2.0) == 2.0**-4 and equivalence_p(found, 0.5) == 1


def test_a_value_that_is_nan_is_refused():
    with pytest.raises(ValueError, match="nan"):
        paired_difference({1: 1.0, 2: 1.0}, {1: 1.0, 2: math.nan})
    assert (
        paired_difference({1: 1.0, 2: 1.0}, {1: 1.0, 3: math.nan}).count == 1
    )  # a seed that is not in common does not matter


# From 20 seeds the bootstrap.


def test_bounds_are_those_of_the_bootstrap_from_twenty_seeds_and_p_stays_that_of_t():
    rng = np.random.default_rng(2)
    x = rng.normal(size=20)
    assert against_zero(x[:19]).method == "t"
    found = against_zero(x)
    assert found.method == "bootstrap" and found.p == pytest.approx(stats.ttest_1samp(x, 0).pvalue)
    assert found == against_zero(x)  # drawn from a fixed seed


def test_on_symmetric_differences_the_bootstrap_is_as_wide_as_t():
    """The plain BCa interval is 9 % narrower at 20 seeds, which costs 2 to 3 % of its coverage."""
    x = stats.norm.ppf((np.arange(20) + 0.5) / 20)
    found, t = against_zero(x), interval(x)
    assert (found.high - found.low) / (t.high - t.low) == pytest.approx(1, abs=0.03)
    plain = stats.bootstrap(
        (x,), np.mean, method="BCa", rng=np.random.default_rng(0)
    ).confidence_interval
    assert (plain.high - plain.low) / (t.high - t.low) < 0.95


def test_the_bootstrap_follows_skewed_differences():
    x = np.random.default_rng(3).exponential(size=30)
    found = against_zero(x)
    assert found.high - found.mean > 1.15 * (found.mean - found.low)


# By simulation.

SEEDS, DRAWS = 5, 3000


def simulated(shift, draws=DRAWS, seeds=SEEDS, seed=0):
    """Studies of a baseline and a variant: what a seed does to both is ten times what it does to
    their difference.
    """
    rng = np.random.default_rng(seed)
    block = 10 * rng.normal(size=(draws, seeds))
    noise = rng.normal(size=(2, draws, seeds)) / math.sqrt(2)  # the sd of a difference is 1
    return [
        paired_difference(by_seed(a), by_seed(b))
        for a, b in zip(block + noise[0], block + noise[1] + shift, strict=True)
    ]


@pytest.fixture(scope="module")
def shifted():
    return simulated(shift=1.0)


def test_coverage_of_the_interval_of_a_mean():
    draws = np.random.default_rng(4).normal(3.0, size=(DRAWS, SEEDS))
    assert near(np.mean([i.low <= 3 <= i.high for i in map(interval, draws)]), 0.95, DRAWS)


@pytest.mark.extended
def test_coverage_of_the_interval_of_a_difference(shifted):
    assert near(np.mean([d.low <= 1 <= d.high for d in shifted]), 0.95, DRAWS)


@pytest.mark.extended
def test_the_effect_size_is_unbiased(shifted):
    """Uncorrected it is 25 % too large at 5 seeds."""
    effects = np.array([d.effect for d in shifted])
    error = effects.std() / math.sqrt(DRAWS)
    assert (
        abs(effects.mean() - 1) <= 3 * error
        and effects.mean() / hedges_correction(SEEDS) - 1 > 3 * error
    )


@pytest.mark.extended
def test_false_positive_rate_of_the_t_test():
    assert near(np.mean([d.p <= 0.05 for d in simulated(shift=0.0, seed=5)]), 0.05, DRAWS)


@pytest.mark.extended
def test_false_positive_rate_of_a_family_under_holm():
    """Six variants share their baseline. Uncorrected, about one study in six raises one."""
    draws, rng = 1000, np.random.default_rng(6)
    ps = []
    for runs in rng.normal(size=(draws, 7, SEEDS)):
        base, *variants = map(by_seed, runs)
        ps.append([paired_difference(base, variant).p for variant in variants])
    assert at_most(np.mean([min(holm(row)) <= 0.05 for row in ps]), 0.05, draws)
    assert np.mean([min(row) <= 0.05 for row in ps]) > 0.12


@pytest.mark.extended
def test_false_positive_rate_of_equivalence(shifted):
    """At most: 5 seeds with a margin of one sd rarely call anything equal. With four sd they do so
    as often as they may.
    """
    assert at_most(np.mean([equivalence_p(d, 1.0) <= 0.05 for d in shifted]), 0.05, DRAWS)
    wide = simulated(shift=4.0, seed=7)
    assert near(np.mean([equivalence_p(d, 4.0) <= 0.05 for d in wide]), 0.05, DRAWS)
    assert np.mean([equivalence_p(d, 4.0) <= 0.05 for d in shifted]) > 0.9


@pytest.mark.extended
@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_coverage_of_bootstrap_intervals(law, monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 999)
    draws, rng = 500, np.random.default_rng(8)
    drawn = (
        rng.normal(size=(draws, 20)) if law == "normal" else rng.uniform(-1, 1, size=(draws, 20))
    )
    found = [against_zero(x) for x in drawn]
    assert {d.method for d in found} == {"bootstrap"}
    assert near(np.mean([d.low <= 0 <= d.high for d in found]), 0.95, draws)


# Curves.


def test_an_example_band():
    found = band({1: ([10, 20, 30], [4.0, 3.0, 2.0]), 2: ([10, 20, 30], [6.0, 3.0, 4.0])})
    assert (found.steps, found.mean, found.count) == ([10, 20, 30], [5, 3, 3], 2)
    assert found.low[1] == found.high[1] == 3
    each = interval([4.0, 6.0])
    assert (found.low[0], found.high[0]) == (pytest.approx(each.low), pytest.approx(each.high))


def test_a_band_covers_the_steps_that_all_seeds_have():
    curves = {
        1: ([10, 20, 30], [4.0, 3.0, 2.0]),
        2: ([30, 10, 40], [1.0, 5.0, 0.0]),
        3: ([10, 30], [3.0, math.nan]),
    }
    assert band(curves).steps == [10]
    assert band({seed: curves[seed] for seed in (1, 2)}).mean == [4.5, 1.5]
    one_seed = band({1: curves[1]})
    assert (one_seed.mean, one_seed.low, one_seed.high, one_seed.count) == (
        [4, 3, 2],
        None,
        None,
        1,
    )
    assert (band({}).steps, band({}).count) == ([], 0)
