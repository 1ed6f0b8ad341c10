"""Levenberg-Marquardt fits of one curve to many data sets at once, with the Huber loss.

Each step solves (J' W J + lam diag(J' W J)) step = -J' W r, with the residuals r, their Jacobian J,
and the weights W = min(1, HUBER / |r|) of iteratively reweighted least squares (Holland and Welsch,
1977). lam decreases if a step lowers the loss and increases otherwise (Marquardt, 1963), for every
fit separately. Parameters at a bound whose gradient points outwards are held there.
"""

from collections.abc import Callable

import numpy as np

HUBER = 1e-3  # delta: largest residual in the quadratic part of the loss
STEPS = 3000
# A fit ends after PATIENCE steps in a row that lower its loss by less than this share.
GAIN = 1e-9
PATIENCE = 3
MAX_LAM = 1e8  # a fit ends at this lam: no step lowers its loss
ZERO = 1e-26  # a loss below this is rounding

# (..., parameters) -> values (..., n), Jacobian (..., n, parameters)
Curve = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def huber(residuals: np.ndarray) -> np.ndarray:
    """Huber loss, summed over the last axis: r^2 / 2, and HUBER (|r| - HUBER / 2) above HUBER."""
    size = np.abs(residuals)
    return np.where(size <= HUBER, residuals**2 / 2, HUBER * (size - HUBER / 2)).sum(-1)


def minimize(
    curve: Curve, y: np.ndarray, start: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns parameters (fits, p) and losses (fits,) of fits from `start` (fits, p) to y, (n,) or
    (fits, n), within the bounds `low` and `high`, which have the shape of `start`.
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
        live = live[(idle[live] < PATIENCE) & (lam[live] < MAX_LAM) & (total[live] > ZERO)]
    return theta, total


def _step(
    curve: Curve,
    theta: np.ndarray,
    y: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    lam: np.ndarray,
) -> np.ndarray:
    """The step of each fit, to be subtracted from theta."""
    values, jacobian = curve(theta)
    residuals = values - y
    weights = np.minimum(1, HUBER / np.maximum(np.abs(residuals), HUBER))
    gradient = np.einsum("fnp,fn->fp", jacobian, weights * residuals)
    hessian = np.einsum("fnp,fn,fnq->fpq", jacobian, weights, jacobian)
    held = ((theta <= low) & (gradient > 0)) | ((theta >= high) & (gradient < 0))
    gradient[held] = 0
    hessian[held[:, :, None] | held[:, None, :]] = 0
    diagonal = np.einsum("fpp->fp", hessian)  # a view of hessian
    diagonal += lam[:, None] * diagonal + 1e-18
    diagonal[held] = 1
    return np.linalg.solve(hessian, gradient[..., None])[..., 0]
