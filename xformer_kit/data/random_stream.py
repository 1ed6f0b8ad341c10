"""Random integers for made-up data: a stream that is a pure function of its key.

Only integer arithmetic is used, so every machine and every version of numpy draws the same.
"""

import numpy as np

from xformer_kit.data.order import hash64, mix

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: the step of splitmix64


class RandomStream:
    """A stream of random integers: the outputs of splitmix64 (Steele, Lea & Flood, 2014, section 3)
    from a key on.
    """

    def __init__(self, *key: object):
        self.at = hash64(repr(key).encode())

    def bits(self, count: int) -> np.ndarray:
        """(count,) uint64."""
        steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN + np.uint64(self.at)
        self.at = int(steps[-1]) if count else self.at
        return mix(steps)

    def below(self, bound: int, count: int) -> np.ndarray:
        """(count,) int64, each of range(bound) alike, up to bound / 2^64."""
        return (self.bits(count) % np.uint64(bound)).astype(np.int64)

    def one(self, low: int, high: int) -> int:
        """One of low .. high, both included."""
        return low + int(self.below(high - low + 1, 1)[0])

    def fractions(self, count: int) -> np.ndarray:
        """(count,) float64 in (0, 1]."""
        return ((self.bits(count) >> np.uint64(11)).astype(np.float64) + 1) / 2**53

    def some(self, n: int, count: int) -> np.ndarray:
        """`count` different ones of range(n), in random order."""
        if 4 * count >= n:
            return np.argsort(self.bits(n), kind="stable")[:count]
        while True:  # of a few more than needed the first of each value; rarely again
            values = list(dict.fromkeys(self.below(n, count + count // 2 + 8).tolist()))
            if len(values) >= count:
                return np.array(values[:count])
