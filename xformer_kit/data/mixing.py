"""The examples of several corpora: one corpus after the other, or in the proportions of a mixture.

Nothing is drawn and nothing is stored: the example at a place of an epoch is computed from
integers.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from xformer_kit.data.order import example_at, hash64
from xformer_kit.data.refused import refused


class Joined:
    """The examples of several splits, one split after the other: for validation and test."""

    def __init__(self, parts: Mapping[str, Any]):
        self.parts = dict(parts)
        self.ends = np.cumsum([len(part) for part in self.parts.values()])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, i: int) -> Any:
        i = range(len(self))[i]  # IndexError beyond the end; negative from the end
        k = int(np.searchsorted(self.ends, i, side="right"))
        part = list(self.parts.values())[k]
        return part[i - int(self.ends[k]) + len(part)]

    def spans(self) -> dict[str, range]:
        """Part -> its indices."""
        starts = [0, *self.ends.tolist()]
        return {
            name: range(a, b) for name, a, b in zip(self.parts, starts, starts[1:], strict=False)
        }

    @property
    def lengths(self) -> np.ndarray:
        """(n, sides) tokens of each example. Only where the parts have lengths of their own."""
        return np.concatenate([part.lengths for part in self.parts.values()])

    @property
    def predicted(self) -> int:
        return sum(part.predicted for part in self.parts.values())

    @property
    def bytes_per_token(self) -> float:
        """The mean of the parts' over the tokens that are predicted."""
        return (
            sum(part.bytes_per_token * part.predicted for part in self.parts.values())
            / self.predicted
        )


class Mixed(Joined):
    """The training examples of a mixture. An epoch has n places, as many as there are examples: the
    first `counts[0]` are of the first part, the next of the second, and so on; a run visits them in
    the order of a permutation.

    Place j of part k in epoch e holds number e counts[k] + j of an endless sequence: all examples
    of the part in random order, then all again in another order, ... So of a part none comes again
    before all have come.
    """

    def __init__(
        self, parts: Mapping[str, Any], weights: Mapping[str, float] | None, temperature: float
    ):
        super().__init__(parts)
        sizes = {name: len(part) for name, part in self.parts.items()}
        self.counts = shares(sizes if weights is None else weights, temperature, len(self))
        if absent := [name for name, count in self.counts.items() if not count]:
            raise refused(
                "data.weights",
                f"must give each corpus an example in the {len(self):,} of an epoch;"
                f" {absent[0]} gets none",
                fix="Give it a larger weight, or leave it out.",
            )

    def rows(self, seed: int, epoch: int, places: "int | np.ndarray") -> Any:
        """The index of the example at a place of an epoch, for an int or an array."""
        asked = np.asarray(places, dtype=np.int64)
        found = np.empty_like(asked)
        first = 0
        for (name, count), span in zip(self.counts.items(), self.spans().values(), strict=True):
            # its own order, which another part does not change
            own = hash64(f"part {seed} {name}".encode())
            mine = (asked >= first) & (asked < first + count)
            turns, at = np.divmod(epoch * count + asked[mine] - first, len(span))
            order = np.empty(len(at), dtype=np.int64)
            for turn in np.unique(turns):
                now = turns == turn
                order[now] = example_at(own, int(turn), at[now], len(span))
            found[mine] = span.start + order
            first += count
        return int(found) if np.ndim(places) == 0 else found

    def most(self, sizes: np.ndarray) -> np.ndarray:
        """The largest sizes that the places of an epoch can have, of the sizes of all examples:
        sorted ones of any epoch are nowhere above these, sorted.
        """
        found = []
        for span, count in zip(self.spans().values(), self.counts.values(), strict=True):
            # an epoch may begin in the middle of a turn
            times = -(-count // len(span)) + (count % len(span) > 0)
            largest = np.sort(np.tile(sizes[span.start : span.stop], times))[::-1]
            found.append(largest[:count])
        return np.concatenate(found)

    def part_counts(self, places: np.ndarray) -> np.ndarray:
        """How many of some places are of each part."""
        return np.bincount(
            np.searchsorted(np.cumsum(list(self.counts.values())), places, side="right"),
            minlength=len(self.parts),
        )


def shares(weights: Mapping[str, float], temperature: float, n: int) -> dict[str, int]:
    """n in parts as w^(1 / temperature), rounded by the largest remainder, so that they sum to
    n.
    """
    exact = temperature == 1
    largest = max(weights.values())
    power = {
        k: Fraction(w) if exact else Fraction((w / largest) ** (1 / temperature))
        for k, w in weights.items()
    }
    whole = sum(power.values())
    quotas = {name: n * p / whole for name, p in power.items()}
    found = {name: int(quota) for name, quota in quotas.items()}
    rest = sorted(quotas, key=lambda name: found[name] - quotas[name])  # of equal ones the first
    return found | {name: found[name] + 1 for name in rest[: n - sum(found.values())]}


def joined(parts: Mapping[str, Any]) -> Any:
    """The splits of the parts that have one, one after another; None if no part has one."""
    there = {name: part for name, part in parts.items() if part is not None}
    return Joined(there) if there else None
