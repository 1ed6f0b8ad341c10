"""Batches of examples of similar length, with at most a given number of tokens, padding included.

Examples are sorted by length and cut into batches, so that the number of rows of a batch follows
from its longest example.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xformer_kit.data.mixing import MixedExamples
from xformer_kit.data.order import StepBatches, example_at
from xformer_kit.registry import config_error

# the number of rows of a batch is a multiple of ROW_MULTIPLE if that many fit, so that it splits
# evenly over devices and micro-batches
ROW_MULTIPLE = 8


def max_rows(tokens: int, length: int) -> int:
    """Returns the largest number of rows of `length` tokens with rows * length <= tokens that is a
    multiple of 8 or, below 8, one of 4, 2, 1; 0 if no row fits.
    """
    rows = tokens // max(length, 1)
    return rows - rows % ROW_MULTIPLE if rows >= ROW_MULTIPLE else 1 << rows.bit_length() >> 1


def step_rows(data: Mapping[str, Any]) -> int:
    """Returns the rows of data.seq_len tokens in a step, over all devices and micro-batches."""
    tokens = data.get("batch_tokens")
    return data["batch_size"] if tokens is None else max_rows(tokens, data["seq_len"])


def batch_bounds(lengths: np.ndarray, tokens: int) -> np.ndarray:
    """Returns the bounds of batches in descending lengths: batch k holds bounds[k] to bounds[k +
    1]. The last examples, too few for a batch, are in none.
    """
    bounds = [0]
    while bounds[-1] < len(lengths):
        end = bounds[-1] + max_rows(tokens, int(lengths[bounds[-1]]))
        if end > len(lengths):
            break
        bounds.append(end)
    return np.array(bounds, dtype=np.int64)


@dataclass(eq=False)
class LengthBatches(StepBatches):
    """Batches of at most `batch_tokens` tokens.

    lengths: (n, sides), the tokens of an example's sequences. The size of an example is that of its
    longest sequence or, with `one_stream`, of all its sequences; rows * largest size <=
    batch_tokens. mixed: the training split of a mixture.

    Step s is batch s % steps_per_epoch of epoch s // steps_per_epoch. In each epoch:
    - The examples are permuted by `example_at`. The last `dropped` of them, too few for a batch,
      are left out; they differ between epochs.
    - The others are sorted by size, then by the length of each sequence, stably, and cut at bounds
      that are equal in all epochs.
    - The order of the batches is another permutation.
    So a batch is a function of (seed, epoch, step), and ranks take slices of it. The epochs of a
    mixture hold different examples: its bounds hold for the largest sizes of any epoch.

    Raises ConfigError if an example is larger than batch_tokens, and if the data are less than a
    batch.
    """

    lengths: np.ndarray
    batch_tokens: int
    seed: int
    one_stream: bool = False
    mixed: MixedExamples | None = None

    def __post_init__(self) -> None:
        sides, self.sizes = _sizes(self.lengths, self.one_stream)
        self.n = len(sides)
        self.max_size = max_size = int(self.sizes.max())
        if max_size > self.batch_tokens:
            raise config_error(
                "data.batch_tokens",
                f"must hold the longest example, {max_size:,} tokens",
                f"{self.batch_tokens:,}",
                f"Try {ROW_MULTIPLE * max_size}, or a smaller data.seq_len with"
                " data.too_long=drop.",
            )
        # one integer for (size, length of each sequence), to sort by
        self._keys = self.sizes
        for side in sides.T:
            self._keys = self._keys * (max_size + 1) + side
        largest = self.sizes if self.mixed is None else self.mixed.max_sizes(self.sizes)
        self._bounds = batch_bounds(np.sort(largest)[::-1], self.batch_tokens)
        self.count = len(self._bounds) - 1  # batches
        self.steps_per_epoch = self.count  # TrainingData may set fewer
        if not self.count:
            raise config_error(
                "data.batch_tokens",
                "must be at most what the training data hold",
                f"{self.batch_tokens:,}, and its {self.n:,} examples have up to {max_size:,}"
                " tokens",
                f"Use {self.n // ROW_MULTIPLE * ROW_MULTIPLE * max_size or max_size:,} or less, or"
                " data.batch_size.",
            )
        self.dropped = self.n - int(self._bounds[-1])
        self._epoch: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))

    def __getitem__(self, step: int) -> np.ndarray:
        """Returns the indices of a step's examples, the longest first, int64."""
        epoch, at = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            chosen = example_at(self.seed, epoch, np.arange(self.n - self.dropped), self.n)
            examples = chosen
            if self.mixed is not None:
                examples = self.mixed.example_indices(self.seed, epoch, chosen)
            self._epoch = epoch, chosen[np.argsort(-self._keys[examples], kind="stable")]
        # Seeds of runs are not negative, so that this permutation is independent of that of the
        # examples.
        batch = example_at(-1 - self.seed, epoch, at, self.count)
        return self._epoch[1][self._bounds[batch] : self._bounds[batch + 1]]

    def check_divisible(self, accumulate: int, world: int) -> None:
        parts, rows = accumulate * world, np.diff(self._bounds)
        indivisible = rows[rows % parts > 0]
        if len(indivisible):
            fix = "Use a product of 2, 4 or 8"
            if ROW_MULTIPLE % parts == 0:
                fix = f"Try {self.max_size * ROW_MULTIPLE} or more, or fewer micro-batches"
            raise config_error(
                "data.batch_tokens",
                "must give every batch rows in a multiple of accumulation times devices,"
                f" {accumulate} x {world} = {parts}",
                f"{self.batch_tokens:,}, and a batch of {indivisible[0]} rows",
                f"{fix}, or data.batch_size.",
            )


def batches_by_length(
    lengths: np.ndarray, tokens: int, one_stream: bool = False
) -> list[list[int]]:
    """Returns all examples in batches of at most `tokens` tokens, padding included, the longest
    first; for validation.
    """
    _, sizes = _sizes(lengths, one_stream)
    order, batches = np.argsort(-sizes, kind="stable"), []
    while len(order):
        rows = max(1, tokens // int(sizes[order[0]]))
        batches.append(order[:rows].tolist())
        order = order[rows:]
    return batches


def _sizes(lengths: np.ndarray, one_stream: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns lengths (n, sides), and the size of each example (n,): the tokens of its longest
    sequence or, with `one_stream`, of all.
    """
    sides = np.asarray(lengths, dtype=np.int64).reshape(len(lengths), -1)
    return sides, sides.sum(1) if one_stream else sides.max(1)
