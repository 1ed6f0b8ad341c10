"""The examples of several corpora: concatenated, or in the proportions of a mixture.

The example at a position of an epoch is computed from integers; no order is stored.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset

from xformer_kit.data.order import example_at, hash64
from xformer_kit.registry import config_error


class ConcatExamples(ConcatDataset[Any]):
    """The concatenated examples of the parts of a mixture, for validation and test."""

    def __init__(self, parts: Mapping[str, Any]):
        super().__init__(parts.values())
        self.parts = dict(parts)

    def spans(self) -> dict[str, range]:
        """Returns the range of indices of each part."""
        ends = zip(self.parts.items(), self.cumulative_sizes, strict=True)
        return {name: range(end - len(part), end) for (name, part), end in ends}

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
        parts = self.parts.values()
        return sum(part.bytes_per_token * part.predicted for part in parts) / self.predicted


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
        if weights is None:
            weights = {name: len(part) for name, part in self.parts.items()}
        self.counts = proportional_counts(weights, temperature, len(self))
        if missing := [name for name, count in self.counts.items() if not count]:
            raise config_error(
                "data.weights",
                f"must give each corpus an example in the {len(self):,} of an epoch;"
                f" {missing[0]} gets none",
                fix="Give it a larger weight, or leave it out.",
            )

    def example_indices(self, seed: int, epoch: int, positions: Any) -> Any:
        """Returns the index of the example at a position of an epoch, for an int or an array."""
        flat = np.asarray(positions, dtype=np.int64)
        indices = np.empty_like(flat)
        first = 0
        for (name, count), span in zip(self.counts.items(), self.spans().values(), strict=True):
            # each part has its own order, which does not depend on the other parts
            part_seed = hash64(f"part {seed} {name}".encode())
            of_part = (flat >= first) & (flat < first + count)
            rounds, at = np.divmod(epoch * count + flat[of_part] - first, len(span))
            for number in np.unique(rounds):
                in_round = rounds == number
                at[in_round] = example_at(part_seed, int(number), at[in_round], len(span))
            indices[of_part] = span.start + at
            first += count
        return indices if indices.ndim else int(indices)

    def max_sizes(self, sizes: np.ndarray) -> np.ndarray:
        """Returns an upper bound of the sizes in an epoch, from the sizes of all examples: the
        sorted sizes of any epoch are at most these, sorted.
        """
        largest = []
        for span, count in zip(self.spans().values(), self.counts.values(), strict=True):
            # an epoch may begin in the middle of a round
            times = -(-count // len(span)) + (count % len(span) > 0)
            repeated = np.tile(sizes[span.start : span.stop], times)
            largest.append(np.sort(repeated)[::-1][:count])
        return np.concatenate(largest)

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
    if temperature != 1:  # without rounding errors otherwise
        largest = max(weights.values())
        weights = {name: (w / largest) ** (1 / temperature) for name, w in weights.items()}
    shares = {name: Fraction(w) for name, w in weights.items()}
    total = sum(shares.values())
    quotas = {name: n * share / total for name, share in shares.items()}
    counts = {name: int(quota) for name, quota in quotas.items()}
    # stable: ties keep the order
    by_remainder = sorted(quotas, key=lambda name: counts[name] - quotas[name])
    return counts | {name: counts[name] + 1 for name in by_remainder[: n - sum(counts.values())]}


def concat_splits(parts: Mapping[str, Any]) -> Any:
    """Concatenates the splits of the parts that have one; None if no part has one."""
    splits = {name: part for name, part in parts.items() if part is not None}
    return ConcatExamples(splits) if splits else None
