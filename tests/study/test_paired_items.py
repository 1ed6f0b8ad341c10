"""Two models on the same items: McNemar's test, the intervals, and the sentence."""

import numpy as np
import pytest

from xformer_kit.study.metric import Metric
from xformer_kit.study.paired_items import item_difference, item_sentence

ACC = Metric("acc", higher_is_better=True)


def scores(both, only_first, only_second, neither):
    """The scores of two models by the counts of a table of 2 times 2."""
    first = [1] * (both + only_first) + [0] * (only_second + neither)
    second = [1] * both + [0] * only_first + [1] * only_second + [0] * neither
    return first, second


def test_approval_of_the_prime_minister():
    """Agresti (1990), Categorical Data Analysis, p. 350, the example of R's mcnemar.test: of 1,600
    persons 794 approve twice, 150 only first, 86 only second. R prints p = 4.115e-05 for the
    approximation with a continuity correction.
    """
    mcnemar = pytest.importorskip("statsmodels.stats.contingency_tables").mcnemar
    found = item_difference(*scores(794, 150, 86, 570))
    assert found.p == pytest.approx(mcnemar([[794, 150], [86, 570]], exact=True).pvalue)
    assert (found.mean, found.items) == (0.04, 1600)
    assert found.p == pytest.approx(4.115e-05, rel=0.1)
    assert (found.only_first, found.only_second) == (150, 86)


@pytest.mark.parametrize("counts", [(5, 3, 0, 2), (0, 1, 6, 40), (3, 4, 4, 0), (9, 10, 1, 0)])
def test_small_tables_have_the_exact_p(counts):
    mcnemar = pytest.importorskip("statsmodels.stats.contingency_tables").mcnemar
    both, first, second, neither = counts
    found = item_difference(*scores(*counts))
    assert found.p == pytest.approx(mcnemar([[both, first], [second, neither]], exact=True).pvalue)
    assert found.low < found.mean < found.high


def test_the_interval_is_that_of_statpsych():
    """The example of ci.prop.ps of the R package statpsych, which computes the same interval."""
    found = item_difference(*scores(6, 26, 4, 12))
    assert (found.low, found.high) == pytest.approx((0.2548067, 0.6251933), abs=1e-7)


def test_five_of_five_is_not_significant():
    """p = 2 / 2^5; six of six have p = 2 / 2^6."""
    assert item_difference(*scores(90, 5, 0, 5)).p == pytest.approx(0.0625)
    assert not item_difference(*scores(90, 5, 0, 5)).differs
    assert item_difference(*scores(90, 6, 0, 4)).differs


def test_the_interval_covers_the_difference_of_two_models():
    """In 95 % of 400 samples of 200 items of which 15 and 5 % are right for one model only."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        found = item_difference(*scores(*rng.multinomial(200, [0.5, 0.15, 0.05, 0.3])))
        covered += found.low <= 0.1 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


def test_other_scores_are_compared_by_a_paired_bootstrap():
    """The interval of the mean of normal differences is its own, mean +- 1.96 sd / sqrt(n)."""
    rng = np.random.default_rng(0)
    items, noise = rng.normal(0, 5, 400), rng.normal(0.1, 0.5, 400)
    found = item_difference(items + noise, items)
    half = 1.96 * noise.std() / 20
    assert found.mean == pytest.approx(noise.mean())
    assert (found.low, found.high) == pytest.approx(
        (found.mean - half, found.mean + half), abs=4e-3
    )
    assert found.p is None and found.differs


def test_an_item_of_weight_two_counts_as_two_items():
    one = item_difference([0.5, 0.25, 0.75], [0.25, 0.25, 0.5], [2, 1, 1])
    assert one.mean == item_difference([0.5, 0.5, 0.25, 0.75], [0.25, 0.25, 0.25, 0.5]).mean
    assert 0 <= one.low < one.mean < one.high <= 0.25  # the samples of one item only


def sentence(counts, metric=ACC):
    return item_sentence(("A", "B"), "T", metric, item_difference(*scores(*counts)))


def test_sentences():
    better = "is better than {} on T by 0.040 of acc (95 % CI 0.021 to 0.059, 1,600 items, McNemar"
    assert sentence((794, 150, 86, 570)).startswith("A " + better.format("B"))
    assert sentence((794, 86, 150, 570)).startswith("B " + better.format("A"))
    lower = Metric("acc", higher_is_better=False)
    assert sentence((794, 150, 86, 570), lower).startswith("B " + better.format("A"))
    assert sentence((90, 5, 0, 5)) == (
        "The difference between A and B on T is not significant: +0.05 of acc (95 % CI 0.00 to"
        " +0.10, 100 items, McNemar p = 0.062)."
    )
    assert sentence((1, 0, 0, 2)) == "A and B have the same acc on each of 3 items of T."
