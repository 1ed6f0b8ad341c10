"""Random numbers for synthetic data: a stream that is a function of its key.

Only integer arithmetic is used, so that every machine and every version of numpy draws the same.
"""

import numpy as np

from xformer_kit.data.order import hash64, mix64

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: the step of splitmix64


class RandomStream:
    """A stream of random numbers: the outputs of splitmix64 (Steele, Lea & Flood, 2014, section 3),
    seeded by a key.
    """

    def __init__(self, *key: object):
        self.state = hash64(repr(key).encode())

    def bits(self, count: int) -> np.ndarray:
        """Returns (count,) uint64, uniform."""
        steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN + self.state
        self.state = int(steps[-1]) if count else self.state
        return mix64(steps)

    def integers(self, bound: int, count: int) -> np.ndarray:
        """Returns (count,) int64, uniform in range(bound) up to an error of bound / 2^64."""
        return (self.bits(count) % bound).astype(np.int64)

    def integer(self, low: int, high: int) -> int:
        """Returns one integer, uniform in low .. high, both included."""
        return low + int(self.integers(high - low + 1, 1)[0])

    def uniform(self, count: int) -> np.ndarray:
        """Returns (count,) float64, uniform in (0, 1]."""
        return ((self.bits(count) >> 11).astype(np.float64) + 1) / 2**53

    def sample(self, n: int, count: int) -> np.ndarray:
        """Returns `count` different integers of range(n), in random order."""
        if 4 * count >= n:
            return np.argsort(self.bits(n), kind="stable")[:count]
        while True:  # draws a few more than needed; rarely repeated
            values = list(dict.fromkeys(self.integers(n, count + count // 2 + 8).tolist()))
            if len(values) >= count:
                return np.array(values[:count])
