"""The order of examples: the example at position i of epoch e is a function of (seed, e, i).

The order of an epoch is a keyed permutation, which is computed where it is needed and never stored.
A run can therefore resume at any step, and ranks and micro-batches take slices of the same global
batch.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from xformer_kit.registry import config_error

ROUNDS = 8
# smallest number of values of a half: with fewer, some orders of few examples are too frequent
MIN_HALF = 8
BLOCK = 4096  # examples whose order is computed at once


def example_at(seed: int, epoch: int, i: Any, n: int) -> Any:
    """Returns the index of the example at position i of an epoch, a permutation of range(n) in i.
    i: an int or an array; the index has its type and shape.

    A Feistel network on pairs (left, right) with left < a, right < b, a * b >= n. Each round adds
    to one half, modulo its size, a keyed hash of the other, so that it is invertible. Values of n
    or above are mapped again until they are below n (Black & Rogaway, 2002, "Ciphers with arbitrary
    finite domains", methods 2 and 3). Only integers are used, so that every machine and every
    version of numpy gives the same order.
    """
    values = np.asarray(i, dtype=np.uint64).reshape(-1)
    keys = _round_keys(seed, epoch)
    a = max(math.isqrt(n - 1) + 1, MIN_HALF)
    b = max(-(-n // a), MIN_HALF)
    values = _feistel(values, a, b, keys)
    while (outside := values >= n).any():
        values[outside] = _feistel(values[outside], a, b, keys)
    indices = values.astype(np.int64)
    return int(indices[0]) if np.ndim(i) == 0 else indices.reshape(np.shape(i))


def _feistel(values: np.ndarray, a: int, b: int, keys: np.ndarray) -> np.ndarray:
    """Returns the permuted values, uint64 in range(a * b)."""
    left, right = values // b, values % b
    for i in range(0, ROUNDS, 2):
        left = (left + mix64(right ^ keys[i]) % a) % a
        right = (right + mix64(left ^ keys[i + 1]) % b) % b
    return left * b + right


def mix64(x: np.ndarray) -> np.ndarray:
    """Returns splitmix64's finalizer of an array of uint64, in integers modulo 2^64 (Steele, Lea &
    Flood, 2014, figure 17).
    """
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@lru_cache(maxsize=16)
def _round_keys(seed: int, epoch: int) -> np.ndarray:
    digest = blake2b(f"order {seed} {epoch}".encode(), digest_size=8 * ROUNDS).digest()
    return np.frombuffer(digest, dtype="<u8")


def hash64(key: bytes) -> int:
    """Returns the BLAKE2b hash of a key as an unsigned integer of 64 bits."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


def example_generator(seed: int, epoch: int, index: int) -> torch.Generator:
    """Returns the random generator of one example (for masking, corruption): a function of (seed,
    epoch, index).
    """
    key = hash64(f"example {seed} {epoch} {index}".encode())
    return torch.Generator().manual_seed(key >> 1)  # 63 bits: a signed integer on every platform


class StepBatches:
    """Base: the examples of each optimizer step, over all devices and micro-batches."""

    n: int  # examples in an epoch
    steps_per_epoch: int
    dropped: int  # examples that are left out of an epoch

    def epoch(self, step: int) -> int:
        return step // self.steps_per_epoch

    def __getitem__(self, step: int) -> np.ndarray:
        """Returns the indices of a step's examples, int64."""
        raise NotImplementedError

    def check_divisible(self, accumulate: int, world: int) -> None:
        """Raises ConfigError if a batch does not split evenly over micro-batches and devices."""
        raise NotImplementedError

    def micro_batch(
        self, step: int, micro: int, accumulate: int = 1, rank: int = 0, world: int = 1
    ) -> list[int]:
        """Returns the indices of one rank's examples in one micro-batch of a step. Over all ranks
        and micro-batches, each example of the step occurs once.
        """
        batch = self[step]
        size = len(batch) // (accumulate * world)
        start = (micro * world + rank) * size
        return batch[start : start + size].tolist()


@lru_cache(maxsize=16)
def _block(seed: int, epoch: int, block: int, batch_size: int, n: int) -> np.ndarray:
    """Returns the indices of the examples of a block: several batches, of about BLOCK examples."""
    size = max(BLOCK - BLOCK % batch_size, batch_size)
    return example_at(seed, epoch, np.arange(block * size, min((block + 1) * size, n)), n)


@dataclass(eq=False)
class GlobalBatches(StepBatches):
    """Batches of `batch_size` examples.

    Step s is batch s % steps_per_epoch of epoch s // steps_per_epoch. The last `dropped` examples
    of an epoch's order, too few for a batch, are left out; they differ between epochs. Raises
    ConfigError if a batch is larger than the data.
    """

    n: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.batch_size > self.n:
            raise config_error(
                "data.batch_size",
                f"must be at most the {self.n:,} examples of the training data",
                f"{self.batch_size:,}",
                f"Use {self.n} or less, a shorter data.seq_len, or a longer text.",
            )
        self.steps_per_epoch, self.dropped = divmod(self.n, self.batch_size)

    def __getitem__(self, step: int) -> np.ndarray:
        epoch, at = divmod(step, self.steps_per_epoch)
        block, i = divmod(at, max(1, BLOCK // self.batch_size))
        indices = _block(self.seed, epoch, block, self.batch_size, self.n)
        return indices[i * self.batch_size : (i + 1) * self.batch_size]

    def check_divisible(self, accumulate: int, world: int) -> None:
        micro_batch_size(self.batch_size, accumulate, world)


def micro_batch_size(batch_size: int, accumulate: int, world: int) -> int:
    """Returns the sequences per micro-batch and device. Raises ConfigError if the global batch does
    not split evenly.
    """
    parts = accumulate * world
    if batch_size % parts:
        lower = batch_size - batch_size % parts
        near = f"{lower} or {lower + parts}" if lower else f"{parts}"
        raise config_error(
            "data.batch_size",
            f"must be a multiple of accumulation times devices, {accumulate} x {world} = {parts}",
            f"{batch_size}",
            f"Try {near}.",
        )
    return batch_size // parts
