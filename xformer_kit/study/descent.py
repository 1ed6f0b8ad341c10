"""Fits of one curve to many sets of figures at once: Huber's loss by the method of Levenberg and
Marquardt.

Each step solves (J' W J + lam diag(J' W J)) step = -J' W r, with the residuals r, their slopes J,
and the weights W = min(1, HUBER / |r|) that make squares of Huber's loss (Holland and Welsch,
1977). lam falls where a step lowers the loss and rises where it does not (Marquardt, 1963), for
every fit by itself. Numbers at a bound that pull outwards are held there.
"""

from collections.abc import Callable

import numpy as np

HUBER = 1e-3  # where squares end
STEPS = 3000
GAIN = 1e-9  # share of the loss; a fit that gains less than that PATIENCE times in a row is done
PATIENCE = 3
STIFF = 1e8  # lam at which no step lowers the loss any more
ZERO = 1e-26  # a loss that is only rounding

Curve = Callable[
    [np.ndarray], tuple[np.ndarray, np.ndarray]
]  # (..., numbers) -> values (..., n), slopes (..., n, numbers)


def huber(residuals: np.ndarray) -> np.ndarray:
    """Sum over the last axis of r^2 / 2, beyond HUBER of HUBER (|r| - HUBER / 2)."""
    size = np.abs(residuals)
    return np.where(size <= HUBER, residuals**2 / 2, HUBER * (size - HUBER / 2)).sum(-1)


def descend(
    curve: Curve, y: np.ndarray, start: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(numbers (fits, p), losses (fits,)) of fits that begin at `start` (fits, p); y: (n,) or
    (fits, n); bounds: as start.
    """
    theta = np.clip(start, low, high).astype(float)
    y = np.broadcast_to(y, (len(theta), np.shape(y)[-1]))
    total, lam, idle = (
        huber(curve(theta)[0] - y),
        np.full(len(theta), 1e-2),
        np.zeros(len(theta), int),
    )
    live = np.flatnonzero(total > ZERO)
    for _ in range(STEPS):
        if not len(live):
            break
        here, goal, least, most = theta[live], y[live], low[live], high[live]
        new = np.clip(here - _step(curve, here, goal, least, most, lam[live]), least, most)
        reached = huber(curve(new)[0] - goal)
        better = reached < total[live]
        small = total[live] - reached <= GAIN * total[live]
        idle[live] = np.where(better & ~small, 0, idle[live] + better)
        lam[live] = np.where(better, np.maximum(lam[live] / 5, 1e-12), lam[live] * 4)
        theta[live[better]], total[live[better]] = new[better], reached[better]
        live = live[(idle[live] < PATIENCE) & (lam[live] < STIFF) & (total[live] > ZERO)]
    return theta, total


def _step(
    curve: Curve,
    theta: np.ndarray,
    y: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    lam: np.ndarray,
) -> np.ndarray:
    values, slopes = curve(theta)
    residuals = values - y
    weights = np.minimum(1, HUBER / np.maximum(np.abs(residuals), HUBER))
    pull = np.einsum("fnp,fn->fp", slopes, weights * residuals)
    bend = np.einsum("fnp,fn,fnq->fpq", slopes, weights, slopes)
    held = ((theta <= low) & (pull > 0)) | ((theta >= high) & (pull < 0))
    pull[held], bend[held[:, :, None] | held[:, None, :]] = 0, 0
    diagonal = np.einsum("fpp->fp", bend)  # shares memory with bend
    diagonal += lam[:, None] * diagonal + 1e-18
    diagonal[held] = 1
    return np.linalg.solve(bend, pull[..., None])[..., 0]
