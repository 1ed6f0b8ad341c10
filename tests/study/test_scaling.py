"""Scaling laws: known ones are found again, the best split of compute is the best, and too few runs
are refused.
"""

import math

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize, minimize_scalar

from xformer_kit.study import scaling
from xformer_kit.study.levenberg_marquardt import HUBER, huber
from xformer_kit.study.scaling import Point, fit

CHINCHILLA = {
    "E": 1.69,
    "A": 406.4,
    "alpha": 0.34,
    "B": 410.7,
    "beta": 0.28,
}  # Hoffmann et al., 2022, equation 10
SIZES, MULTIPLES = np.geomspace(1e7, 1e10, 4), (5, 20, 80)


def law(parameters, tokens):
    c = CHINCHILLA
    return c["E"] + c["A"] * parameters ** -c["alpha"] + c["B"] * tokens ** -c["beta"]


def grid(noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    pairs = [(n, n * m) for n in SIZES for m in MULTIPLES]
    return [Point(n, d, law(n, d) * math.exp(noise * rng.normal())) for n, d in pairs]


def ladder(noise=0.0, rng=None, runs=3):
    sizes = np.repeat(np.geomspace(1e4, 1e6, 5), runs)
    return [
        Point(n, 1e9, (2 + 50 * n**-0.4) * math.exp(noise * rng.normal() if rng else 0))
        for n in sizes
    ]


@pytest.fixture(scope="module")
def exact():
    return fit(grid(), resamples=5)


def test_a_law_of_both_axes_is_recovered(exact):
    assert {name: getattr(exact, name) for name in CHINCHILLA} == pytest.approx(
        CHINCHILLA, rel=1e-3
    )
    assert exact.residual < 1e-6 and exact.at_bounds == () and exact.points == 12
    assert exact.loss(7e10, 1.4e12) == pytest.approx(law(7e10, 1.4e12), rel=1e-5)


def test_a_law_of_one_axis_is_recovered():
    found = fit(ladder(), resamples=5)
    assert (found.E, found.A, found.alpha) == pytest.approx((2, 50, 0.4), rel=1e-4)
    assert found.B is found.beta is None and found.intervals.keys() == {"E", "A", "alpha"}
    turned = fit([Point(p.tokens, p.parameters, p.loss) for p in ladder()], resamples=5)
    assert (turned.E, turned.B, turned.beta) == pytest.approx(
        (2, 50, 0.4), rel=1e-4
    ) and turned.alpha is None


def test_units_do_not_change_exponents():
    found = fit([Point(p.parameters / 1e6, p.tokens, p.loss) for p in ladder()], resamples=5)
    assert (found.alpha, found.A) == pytest.approx((0.4, 50 * 1e6**-0.4), rel=1e-4)


def test_the_jacobian_is_that_of_the_curve():
    x, y = (
        np.random.default_rng(0).normal(size=(9, 2)),
        np.random.default_rng(1).normal(1, 0.003, size=9),
    )
    theta = np.array([0.3, -0.5, 0.4, -0.2, 0.7])

    def slope(t):
        values, slopes = scaling._curve(t, x)
        return slopes.T @ np.clip(values - y, -HUBER, HUBER)

    assert check_grad(lambda t: huber(scaling._curve(t, x)[0] - y), slope, theta) < 1e-6


def test_the_fit_equals_that_of_scipy():
    """Losses with noise, from a start at the law and one far off, also of two sets at once."""
    points = grid(0.004)
    sizes = np.log([[p.parameters, p.tokens] for p in points])
    x, y = (
        sizes - sizes.mean(0),
        np.log([[p.loss for p in points], [p.loss * 1.1 for p in grid(0.004, 1)]]),
    )
    starts = np.array([[0.5, 1.0, 0.3, 1.0, 0.3], [0.0, 0.0, 0.8, 0.5, 0.1]])
    found, losses = scaling._fit_all(x, y, starts)
    for i in range(2):
        options = {"ftol": 1e-14, "gtol": 1e-10, "maxiter": 20_000, "maxfun": 100_000}
        bounds = [(None, None), *[(None, None), scaling.EXPONENTS] * 2]
        theirs = minimize(
            lambda t, i=i: 1e6 * huber(scaling._curve(t, x)[0] - y[i]),
            found[i] + 0.01,
            method="L-BFGS-B",
            bounds=bounds,
            options=options,
        )
        assert losses[i] * 1e6 <= theirs.fun * (1 + 1e-6)


def test_the_fit_is_robust_to_one_outlier():
    """What Huber is for: squares would follow it."""
    points = grid()
    points[5] = points[5]._replace(loss=points[5].loss * 1.2)
    assert fit(points, resamples=2).alpha == pytest.approx(0.34, abs=0.01)


@pytest.mark.parametrize("flops", [1e18, 5.76e23])
def test_the_compute_optimal_size_has_the_lowest_loss(exact, flops):
    best = exact.optimal(flops)
    assert 6 * best.parameters * best.tokens == pytest.approx(flops)
    searched = minimize_scalar(
        lambda log_n: exact.loss(math.exp(log_n), flops / 6 / math.exp(log_n)),
        bounds=(5, 35),
        options={"xatol": 1e-10},
    )
    assert best.loss == pytest.approx(searched.fun, rel=1e-9)
    assert best.parameters == pytest.approx(math.exp(searched.x), rel=1e-3)


def test_chinchillas_own_budget(exact):
    """The published numbers give 32 to 33 billion parameters at 5.76e23 FLOPs, fewer than the 40 of
    table A3, as Besiroglu et al. (2024) found: the paper rounds its exponents.
    """
    assert 3.1e10 < exact.optimal(5.76e23).parameters < 3.4e10


def test_intervals_widen_with_noise_and_contain_the_law():
    quiet, loud = fit(grid(0.0005), resamples=60), fit(grid(0.005), resamples=60)
    for name in ("E", "alpha", "beta"):
        (a, b), (c, d) = quiet.intervals[name], loud.intervals[name]
        assert a <= CHINCHILLA[name] <= b and d - c > 3 * (b - a)
    best = loud.optimal(1e21)
    assert best.low < best.parameters < best.high
    assert fit(grid(0.005), resamples=60).intervals == loud.intervals  # drawn from a fixed seed


def test_intervals_of_simulated_ladders_contain_the_exponent():
    """Of 30, at 95 %, at least 25: fewer have a chance below 1 %."""
    rng = np.random.default_rng(5)
    found = [fit(ladder(0.002, rng), resamples=60).intervals["alpha"] for _ in range(30)]
    assert sum(low <= 0.4 <= high for low, high in found) >= 25
    assert all(high - low < 0.2 for low, high in found)


def test_an_undetermined_exponent_is_reported():
    """A loss that falls by the same at every doubling has no power law with a floor: the search
    ends at its bound.
    """
    found = fit([Point(n, 1e9, 5 - 0.1 * math.log(n)) for n in SIZES], resamples=2)
    assert found.at_bounds == ("alpha",) and found.alpha == scaling.EXPONENTS[0]


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (
            [],
            "A scaling law needs runs of several sizes; parameters and tokens are the same in all.",
        ),
        (
            [Point(1e6, 1e8, 3.0)] * 9,
            "A scaling law needs runs of several sizes; parameters and tokens are the same in all.",
        ),
        (ladder()[:9], "A scaling law needs at least 4 numbers of parameters; got 3."),
        (
            [Point(n, d, 3.0) for n in (1e6, 1e7, 1e8) for d in (1e8, 1e9)],
            "A scaling law needs at least 3 numbers of tokens; got 2.",
        ),
        (
            [Point(n, n, 3.0) for n in (1e6, 1e7, 1e8)],
            "A scaling law of parameters and tokens needs at least 6 pairs; got 3.",
        ),
        (
            [Point(n, 20 * n, 3.0) for n in np.geomspace(1e6, 1e8, 7)],
            (
                "Tokens grow in step with parameters, so their exponents cannot be separated: take"
                " more than one number of tokens per parameter, or fit one axis (axis=parameters)."
            ),
        ),
        (
            [*ladder(), Point(1e6, 1e9, -1.0)],
            "A scaling law needs sizes and losses above 0; got (1000000.0, 1000000000.0, -1.0).",
        ),
        (
            [*ladder(), Point(1e6, 1e9, math.nan)],
            "A scaling law needs sizes and losses above 0; got (1000000.0, 1000000000.0, nan).",
        ),
    ],
)
def test_runs_that_do_not_identify_a_law_are_refused(points, said):
    with pytest.raises(ValueError) as raised:  # noqa: PT011  (the whole text is compared)
        fit(points)
    assert str(raised.value) == said


def test_a_requested_axis():
    rising = [Point(n, 20 * n, 2 + 50 * n**-0.4) for n in np.geomspace(1e4, 1e6, 6)]
    found = fit(rising, "parameters", resamples=2)
    assert found.alpha == pytest.approx(0.4, rel=1e-3) and found.beta is None
    assert found.optimal(1e18) is None  # a law of one axis has no compute-optimal size
