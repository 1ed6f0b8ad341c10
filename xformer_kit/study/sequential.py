"""A test that may be looked at after every pair of runs: keep a change, discard it, or go on.

The differences of pairs are x_1, x_2, ..., independent and normal with unknown variance. For a
normal prior of variance g on the standardized effect, and the right Haar prior on the scale, the
Bayes factor against a mean of 0 after n pairs is

    E_g = (1 + n g)^(-1/2) ((1 + t^2 / (n - 1)) / (1 + t^2 / ((n - 1) (1 + n g))))^(n / 2)

with t the paired t statistic (Rouder et al., 2009, equation 1; Goenen et al., 2005). Under the null
hypothesis it is a martingale of mean 1 for every variance, so that it ever exceeds 1 / alpha with a
probability of at most alpha, whatever the number of looks (Ville, 1939; Perez-Ortiz et al., 2024,
arXiv:2208.07610; Wang and Ramdas, 2025, arXiv:2310.03722). The mean over several g is one too.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np

from xformer_kit.study.statistics import ALPHA, Estimate

# Variances of the prior: differences of paired runs are a fraction of their standard deviation, or
# many times as large.
PRIORS = (1.0, 10.0, 100.0)
MAX_PAIRS = 10_000
Decision = Literal["keep", "discard", "undecided"]


def log_evidence(t_squared: float, count: int) -> float:
    """Logarithm of the mean of E_g over PRIORS; count: pairs, at least two."""
    logs = []
    for g in PRIORS:
        shrunk, share = 1 + count * g, t_squared / (count - 1)
        ratio = math.log1p(share) - math.log1p(share / shrunk)
        logs.append((count * ratio - math.log(shrunk)) / 2)
    largest = max(logs)
    return largest + math.log(sum(math.exp(x - largest) for x in logs) / len(logs))


@cache
def threshold(count: int, alpha: float = ALPHA) -> float:
    """The smallest |t| after `count` pairs at which the evidence is 1 / alpha; infinite if no
    difference is enough.
    """
    from scipy.optimize import brentq

    def missing(log_t: float) -> float:
        return math.log(1 / alpha) - log_evidence(math.exp(2 * log_t), count)

    if count < 2 or missing(20) > 0:
        return math.inf
    return math.exp(float(brentq(missing, -20, 20)))


def always_valid_interval(differences: Sequence[float], alpha: float = ALPHA) -> Estimate:
    """The mean with the interval of all means that the evidence does not contradict. With a
    probability of at least 1 - alpha it contains the true mean after every number of pairs. None
    for bounds that the pairs do not give.
    """
    x = np.array(differences, dtype=float)
    if not len(x):
        return Estimate(None, None, None)
    mean, t = float(x.mean()), threshold(len(x), alpha)
    if math.isinf(t):
        return Estimate(mean, None, None)
    half = t * float(x.std(ddof=1)) / math.sqrt(len(x))
    return Estimate(mean, mean - half, mean + half)


def decide(found: Estimate, sign: int, effect: float = 0.0) -> Decision:
    """The decision on a change with this always-valid interval of its differences from the base.

    keep: it is better, and an improvement of `effect` is not excluded. discard: it is worse, or an
    improvement of `effect` or more is excluded. sign: 1 if lower is better, else -1, see Metric.
    """
    if found.low is None or found.high is None:
        return "undecided"
    least, most = sorted((-sign * found.low, -sign * found.high))  # improvement
    if most < effect or most <= 0:
        return "discard"
    return "keep" if least > 0 else "undecided"


def pairs_to_decide(differences: Sequence[float], sign: int, effect: float = 0.0) -> int | None:
    """The number of pairs at which the decision is made if mean and standard deviation stay what
    they are; None if it needs more than MAX_PAIRS, or there are fewer than two.
    """
    if len(differences) < 2:
        return None
    mean, sd = float(np.mean(differences)), float(np.std(differences, ddof=1))

    def decided(count: int) -> bool:
        half = threshold(count) * sd / math.sqrt(count) if sd else 0.0
        interval = Estimate(mean, mean - half, mean + half)
        return math.isfinite(half) and decide(interval, sign, effect) != "undecided"

    # Half of the width falls with the number of pairs, so a search by halves finds the first one.
    if not decided(MAX_PAIRS):
        return None
    low, high = len(differences) - 1, MAX_PAIRS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high
