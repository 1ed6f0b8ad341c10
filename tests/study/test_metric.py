"""How figures are said: the way that is better, the unit, and as many digits as an error
supports.
"""

import math

import numpy as np
import pytest

from xformer_kit.registry import ConfigError
from xformer_kit.study.metric import decimals, format_p, metric, significant_digits
from xformer_kit.study.numbers import clock, compact


@pytest.mark.parametrize(
    ("name", "higher", "unit"),
    [
        ("val/loss", False, "nats"),
        ("val/books/perplexity", False, ""),
        ("test/bits_per_byte", False, "bits per byte"),
        ("test/accuracy", True, "points"),
        ("test/sequence_accuracy", True, "points"),
        ("test/hard_exact_match", True, "points"),
        ("tokens_per_second", True, "tokens/s"),
        ("rougeL", True, "points"),
        ("ter", False, "points"),
        ("val/pearson", True, ""),
    ],
)
def test_direction_of_metrics(name, higher, unit):
    found = metric(name)
    assert (found.higher_is_better, found.unit) == (higher, unit)
    sides = ("better", "worse") if higher else ("worse", "better")
    assert (found.side(0.1), found.side(-0.1)) == sides


def test_a_user_metric_needs_its_direction():
    with pytest.raises(
        ConfigError,
        match=r"^study\.metric: it is not known whether 'val/los' is .*Did you mean 'val/loss'\? ",
    ):
        metric("val/los")
    assert metric("val/surprise", higher_is_better=False).side(-1) == "better"
    assert metric("val/loss", higher_is_better=True).side(1) == "better"  # the setting overrides


@pytest.mark.parametrize(
    ("error", "digits"),
    [(0.007, 3), (0.0124, 3), (0.0354, 3), (0.0356, 2), (0.94, 1), (1.2, 1), (35, 0), (120, 0)],
)
def test_digits_follow_the_error(error, digits):
    """The rule's own example: an error of 0.119 supports 0.12, one of 0.367 supports 0.4."""
    assert decimals(error) == digits
    assert (decimals(0.119), decimals(0.367)) == (2, 1)


@pytest.mark.parametrize(
    ("low", "high", "digits", "text"),
    [
        (12_344.0, 12_346.0, 3, "12.3k"),
        (8_000.0, 16_500.0, 2, "12k"),
        (0.0, 80_000.0, 1, "10k"),
        (None, None, 2, "12k"),
        (12_345.0, 12_345.0, 3, "12.3k"),
    ],
)
def test_significant_digits_follow_the_interval(low, high, digits, text):
    assert significant_digits(12_345.0, low, high) == digits
    assert compact(12_345.0, digits) == text


def test_compact_numbers():
    found = [compact(x) for x in (None, 0, 0.5, 987, 999.6, 12_345, 4.56e6, 1e20, 1.2e90)]
    assert found == ["-", "0", "0.5", "987", "1.00k", "12.3k", "4.56M", "100E", "1.2e+90"]


def test_times_have_at_most_one_decimal():
    assert [clock(x) for x in (0.44, 9.96, 98.76, 564.0, 7000.0)] == [
        "0.4 s",
        "10.0 s",
        "98.8 s",
        "9.4 min",
        "1.9 h",
    ]
    assert [clock(x, 2) for x in (9.96, 98.76, 564.0)] == ["10 s", "99 s", "9.4 min"]


def test_formatted_values():
    loss, share = metric("val/loss"), metric("val/accuracy")
    assert loss.format(0.0314159, 3) == "0.031 nats" and loss.format(-0.0001, 3) == "0.000 nats"
    assert share.format(0.125, 1) == "12.5 points" and share.format_exact(0.01) == "1 points"
    assert metric("val/perplexity").format(12.34, 1) == "12.3"


def test_a_minimum_detectable_effect_is_rounded_up():
    for measured in (metric("val/loss"), metric("val/accuracy")):
        for value in np.geomspace(1e-5, 900, 400):
            up = measured.round_up(value)
            shown = float(measured.format(up, unit=False)) / measured.scale
            assert value * (1 - 1e-6) <= shown <= value * 1.3 + 1e-12
            assert math.isclose(up, shown, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("p", "said"),
    [
        (0.00004, "p < 0.0001"),
        (0.00043, "p = 0.0004"),
        (0.0123, "p = 0.012"),
        (0.05, "p = 0.05"),
        (0.0496, "p = 0.05"),
        (0.0504, "p = 0.0504"),
        (0.050004, "p = 0.050004"),
        (0.3, "p = 0.3"),
        (1.0, "p = 1"),
    ],
)
def test_a_p_is_never_rounded_across_alpha(p, said):
    assert format_p(p) == said
