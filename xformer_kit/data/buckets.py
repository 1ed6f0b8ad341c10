"""Batches of examples of similar length: as many as fit into a number of tokens, padding included.

Batches are cut from the examples in order of length, so that the length of a bucket follows from
the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xformer_kit.data.mixing import Mixed
from xformer_kit.data.order import StepBatches, example_at
from xformer_kit.data.refused import refused

# a batch has a multiple of so many rows where that many fit, so that devices and micro-batches
# share it evenly
ROWS = 8


def rows_within(tokens: int, length: int) -> int:
    """Rows of a batch whose longest example has `length` tokens: rows * length <= tokens.

    A multiple of 8, or below that the largest of 4, 2, 1. 0 where not one fits.
    """
    rows = tokens // max(length, 1)
    return rows - rows % ROWS if rows >= ROWS else 1 << rows.bit_length() >> 1


def step_rows(data: Mapping[str, Any]) -> int:
    """Rows of data.seq_len tokens in a step, all devices and accumulation together."""
    tokens = data.get("batch_tokens")
    return data["batch_size"] if tokens is None else rows_within(tokens, data["seq_len"])


def cuts(lengths: np.ndarray, tokens: int) -> np.ndarray:
    """Where batches begin and end in lengths that descend: batch k holds cuts[k] to cuts[k + 1].
    The rest is left over.
    """
    found = [0]
    while found[-1] < len(lengths):
        rows = rows_within(tokens, int(lengths[found[-1]]))
        if found[-1] + rows > len(lengths):
            break
        found.append(found[-1] + rows)
    return np.array(found, dtype=np.int64)


@dataclass(eq=False)
class LengthBatches(StepBatches):
    """Batches of at most `batch_tokens` tokens.

    `lengths` (n, sides) are the tokens of an example's streams; its longest counts, or with
    `together` the sum of them: rows * longest <= batch_tokens. Step s is the batch s %
    steps_per_epoch of epoch s // steps_per_epoch. In an epoch, the examples are put in the order of
    the permutation `example_at`; the last `dropped` of it, too few for a batch, are left out, other
    ones each time. The others are sorted by length, then by that of each side, equal ones staying
    in that order, and cut into batches at places that are the same in every epoch; the order of
    batches is another permutation. So a batch is a function of (seed, epoch, step), and every
    layout takes slices of it.

    `mixed` is the training split of a mixture, whose epochs hold other examples each: the places
    are then cut from the most tokens that any epoch can have there.

    Raises ConfigError where one example has more tokens, and where the data are less than a batch.
    """

    lengths: np.ndarray
    batch_tokens: int
    seed: int
    together: bool = False
    mixed: Mixed | None = None

    def __post_init__(self) -> None:
        sides, self.sizes = _sizes(self.lengths, self.together)
        self.n = len(sides)
        self.longest = longest = int(self.sizes.max())
        if longest > self.batch_tokens:
            raise refused(
                "data.batch_tokens",
                f"must hold the longest example, {longest:,} tokens",
                f"{self.batch_tokens:,}",
                f"Try {ROWS * longest}, or a smaller data.seq_len with data.too_long=drop.",
            )
        # one integer for (size, length of each side): equal sizes go by the sides
        self._keys = self.sizes
        for side in sides.T:
            self._keys = self._keys * (longest + 1) + side
        largest = self.sizes if self.mixed is None else self.mixed.most(self.sizes)
        self._cuts = cuts(np.sort(largest)[::-1], self.batch_tokens)
        self.count = len(self._cuts) - 1  # batches
        self.steps_per_epoch = self.count  # may be fewer, see tasks/training_data.py
        if not self.count:
            raise refused(
                "data.batch_tokens",
                "must be at most what the training data hold",
                f"{self.batch_tokens:,}, and its {self.n:,} examples have up to {longest:,} tokens",
                f"Use {self.n // ROWS * ROWS * longest or longest:,} or less, or data.batch_size.",
            )
        self.dropped = self.n - int(self._cuts[-1])
        self._epoch: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))

    def __getitem__(self, step: int) -> np.ndarray:
        """Indices of the examples of a step, the longest first, int64."""
        epoch, at = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            taken = np.asarray(
                example_at(self.seed, epoch, np.arange(self.n - self.dropped), self.n)
            )
            rows = taken if self.mixed is None else self.mixed.rows(self.seed, epoch, taken)
            self._epoch = epoch, taken[np.argsort(-self._keys[rows], kind="stable")]
        # Seeds of runs are not negative: this permutation has nothing to do with that of the
        # examples.
        batch = example_at(-1 - self.seed, epoch, at, self.count)
        return self._epoch[1][self._cuts[batch] : self._cuts[batch + 1]]

    def fits(self, accumulate: int, world: int) -> None:
        components, rows = accumulate * world, np.diff(self._cuts)
        bad = rows[rows % components > 0]
        if len(bad):
            way = f"Try {self.longest * ROWS} or more, or fewer components"
            raise refused(
                "data.batch_tokens",
                "must give every batch rows in a multiple of accumulation times devices,"
                f" {accumulate} x {world} = {components}",
                f"{self.batch_tokens:,}, and a batch of {bad[0]} rows",
                f"{'Use 2, 4 or 8 components' if ROWS % components else way}, or data.batch_size.",
            )


def in_order(lengths: np.ndarray, tokens: int, together: bool = False) -> list[list[int]]:
    """All examples in batches of at most so many tokens, padding included, the longest first: for
    validation.
    """
    _, sizes = _sizes(lengths, together)
    order, found = np.argsort(-sizes, kind="stable"), []
    while len(order):
        rows = max(1, tokens // int(sizes[order[0]]))
        found.append(order[:rows].tolist())
        order = order[rows:]
    return found


def _sizes(lengths: np.ndarray, together: bool) -> tuple[np.ndarray, np.ndarray]:
    """Lengths (n, sides), and the tokens of each example (n,): of its longest side, or `together`
    of all.
    """
    sides = np.asarray(lengths, dtype=np.int64).reshape(len(lengths), -1)
    return sides, sides.sum(1) if together else sides.max(1)
