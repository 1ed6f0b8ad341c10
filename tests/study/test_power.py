"""Power of the paired t: published sizes, statsmodels, and studies that are simulated."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from xformer_kit.study.power import minimum_detectable_effect, power_of, seeds_needed


@pytest.mark.parametrize(("ratio", "count"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_published_sample_sizes(ratio, count):
    """Pairs for 80 % power at 5 %, two-sided, at Cohen's small, medium and large effect, as G*Power
    gives them.
    """
    assert seeds_needed(1.0, ratio) == count


@pytest.mark.parametrize("count", [2, 3, 5, 20, 200])
@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_power_is_that_of_statsmodels(count, alpha):
    for ratio in (0.1, 0.5, 1.5):
        assert power_of(ratio, 1.0, count, alpha) == pytest.approx(
            TTestPower().power(ratio, count, alpha), rel=1e-6
        )


@pytest.mark.parametrize("count", [2, 3, 5, 20, 1000])
@pytest.mark.parametrize("alpha", [0.05, 0.0005])
def test_power_at_the_minimum_detectable_effect(count, alpha):
    seen = minimum_detectable_effect(0.3, count, power=0.9, alpha=alpha)
    assert power_of(seen, 0.3, count, alpha) == pytest.approx(0.9, abs=1e-6)


@pytest.mark.parametrize("difference", [10.0, 1.0, 0.1, 0.01])
def test_one_seed_fewer_is_too_few(difference):
    count = seeds_needed(0.5, difference, power=0.8, alpha=0.02)
    assert power_of(difference, 0.5, count, 0.02) >= 0.8
    assert count == 2 or power_of(difference, 0.5, count - 1, 0.02) < 0.8
    assert minimum_detectable_effect(0.5, count, alpha=0.02) <= difference


def test_power_of_degenerate_cases():
    assert (
        minimum_detectable_effect(None, 5) is None
        and minimum_detectable_effect(0.1, 1) is None
        and minimum_detectable_effect(0.0, 5) == 0
    )
    assert seeds_needed(0.0, 0.1) == 2
    with pytest.raises(
        ValueError, match=r"^difference: must not be 0; no number of seeds detects it\.$"
    ):
        seeds_needed(1.0, 0.0)


def test_the_sign_of_a_difference_does_not_matter():
    assert power_of(-1.0, 1.0, 5) == power_of(1.0, 1.0, 5) and seeds_needed(1.0, -0.5) == 34


def test_power_in_simulated_studies():
    draws = 20_000
    x = np.random.default_rng(0).normal(minimum_detectable_effect(1.0, 5), size=(draws, 5))
    seen = np.mean(stats.ttest_1samp(x, 0, axis=1).pvalue <= 0.05)
    assert abs(seen - 0.8) <= 3 * math.sqrt(0.8 * 0.2 / draws)
