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
    active = np.flatnonzero(total > ZERO)
    for _ in range(STEPS):
        if not len(active):
            break
        current, targets, lower, upper = theta[active], y[active], low[active], high[active]
        new = np.clip(
            current - _step(curve, current, targets, lower, upper, lam[active]), lower, upper
        )
        new_total = huber(curve(new)[0] - targets)
        better = new_total < total[active]
        small_gain = total[active] - new_total <= GAIN * total[active]
        idle[active] = np.where(better & ~small_gain, 0, idle[active] + better)
        lam[active] = np.where(better, np.maximum(lam[active] / 5, 1e-12), lam[active] * 4)
        theta[active[better]], total[active[better]] = new[better], new_total[better]
        active = active[
            (idle[active] < PATIENCE) & (lam[active] < MAX_LAM) & (total[active] > ZERO)
        ]
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
    at_bound = ((theta <= low) & (gradient > 0)) | ((theta >= high) & (gradient < 0))
    gradient[at_bound] = 0
    hessian[at_bound[:, :, None] | at_bound[:, None, :]] = 0
    diagonal = np.einsum("fpp->fp", hessian)  # a view of hessian
    diagonal += lam[:, None] * diagonal + 1e-18
    diagonal[at_bound] = 1
    return np.linalg.solve(hessian, gradient[..., None])[..., 0]
