"""The examples of several corpora: concatenated, or in the proportions of a mixture.

The example at a position of an epoch is computed from integers; no order is stored.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from xformer_kit.data.config_error import config_error
from xformer_kit.data.order import example_at, hash64


class ConcatExamples:
    """The concatenated examples of the parts of a mixture, for validation and test."""

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
        """Returns the range of indices of each part."""
        starts = [0, *self.ends.tolist()]
        return {
            name: range(a, b) for name, a, b in zip(self.parts, starts, starts[1:], strict=False)
        }

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, (n, sides); only if the parts have `lengths`."""
        return np.concatenate([part.lengths for part in self.parts.values()])

    @property
    def predicted(self) -> int:
        return sum(part.predicted for part in self.parts.values())

    @property
    def bytes_per_token(self) -> float:
        """The mean of the parts' bytes_per_token, weighted by their predicted tokens."""
        return (
            sum(part.bytes_per_token * part.predicted for part in self.parts.values())
            / self.predicted
        )


class MixedExamples(ConcatExamples):
    """The training examples of a mixture.

    An epoch has n positions, as many as examples: the first `counts[0]` are of the first
    part, the next of the second, and so on; a run visits them in the order of a permutation.

    Position j of part k in epoch e holds item e counts[k] + j of an endless sequence: all examples
    of the part in random order, then all of them in another random order, and so on. No example of
    a part is repeated before all of them have occurred.
    """

    def __init__(
        self, parts: Mapping[str, Any], weights: Mapping[str, float] | None, temperature: float
    ):
        super().__init__(parts)
        sizes = {name: len(part) for name, part in self.parts.items()}
        self.counts = proportional_counts(
            sizes if weights is None else weights, temperature, len(self)
        )
        if missing_package := [name for name, count in self.counts.items() if not count]:
            raise config_error(
                "data.weights",
                f"must give each corpus an example in the {len(self):,} of an epoch;"
                f" {missing_package[0]} gets none",
                fix="Give it a larger weight, or leave it out.",
            )

    def example_indices(self, seed: int, epoch: int, positions: "int | np.ndarray") -> Any:
        """Returns the index of the example at a position of an epoch, for an int or an array."""
        flat = np.asarray(positions, dtype=np.int64)
        found = np.empty_like(flat)
        first = 0
        for (name, count), span in zip(self.counts.items(), self.spans().values(), strict=True):
            # each part has its own order, which does not depend on the other parts
            part_seed = hash64(f"part {seed} {name}".encode())
            of_part = (flat >= first) & (flat < first + count)
            rounds, at = np.divmod(epoch * count + flat[of_part] - first, len(span))
            order = np.empty(len(at), dtype=np.int64)
            for number in np.unique(rounds):
                in_round = rounds == number
                order[in_round] = example_at(part_seed, int(number), at[in_round], len(span))
            found[of_part] = span.start + order
            first += count
        return int(found) if np.ndim(positions) == 0 else found

    def max_sizes(self, sizes: np.ndarray) -> np.ndarray:
        """Returns an upper bound of the sizes in an epoch, from the sizes of all examples: the
        sorted sizes of any epoch are at most these, sorted.
        """
        found = []
        for span, count in zip(self.spans().values(), self.counts.values(), strict=True):
            # an epoch may begin in the middle of a round
            times = -(-count // len(span)) + (count % len(span) > 0)
            largest = np.sort(np.tile(sizes[span.start : span.stop], times))[::-1]
            found.append(largest[:count])
        return np.concatenate(found)

    def part_counts(self, positions: np.ndarray) -> np.ndarray:
        """Returns the number of the positions that are of each part."""
        return np.bincount(
            np.searchsorted(np.cumsum(list(self.counts.values())), positions, side="right"),
            minlength=len(self.parts),
        )


def proportional_counts(weights: Mapping[str, float], temperature: float, n: int) -> dict[str, int]:
    """Splits n in proportion to w^(1 / temperature), rounded by the largest remainder, so that the
    counts sum to n.
    """
    exact = temperature == 1
    largest = max(weights.values())
    power = {
        k: Fraction(w) if exact else Fraction((w / largest) ** (1 / temperature))
        for k, w in weights.items()
    }
    total = sum(power.values())
    quotas = {name: n * p / total for name, p in power.items()}
    counts = {name: int(quota) for name, quota in quotas.items()}
    rest = sorted(
        quotas, key=lambda name: counts[name] - quotas[name]
    )  # stable: ties keep the order
    return counts | {name: counts[name] + 1 for name in rest[: n - sum(counts.values())]}


def concat_splits(parts: Mapping[str, Any]) -> Any:
    """Concatenates the splits of the parts that have one; None if no part has one."""
    splits = {name: part for name, part in parts.items() if part is not None}
    return ConcatExamples(splits) if splits else None
