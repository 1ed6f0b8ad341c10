"""Counts examples of validation and test that occur in training too, by 64-bit hashes, while the
splits are read.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from xformer_kit.data.corpus import Corpus
from xformer_kit.data.order import hash64

LOOKUP_BATCH = 4096  # training examples that are looked up at once
TRAINING = "train"


class Overlap:
    """Counts equal pairs, or equal documents of a text. All splits pass through `observe`, training
    last.

    Memory: 8 bytes per example of the other splits, and 9 per different example of them during
    training. Pairs with an empty side are not counted; texts without documents neither.
    """

    def __init__(self, corpus: Corpus):
        self.unit = "pairs" if corpus.form == "pairs" else "documents"
        self.enabled = corpus.form == "pairs" or corpus.documents
        self.hashes: dict[str, array[int]] = {}  # split -> hashes of its examples
        self.in_training = _numbers(array("Q"))  # hashes that occur in training too

    def observe(self, split: str, items: Iterable[Any]) -> Iterable[Any]:
        """Yields the examples of a split unchanged and hashes them."""
        if not self.enabled:
            return items
        return self._training(items) if split == TRAINING else self._other(split, items)

    def _other(self, split: str, items: Iterable[Any]) -> Iterator[Any]:
        """Yields the examples of another split than training and stores their hashes."""
        hashes = self.hashes[split] = array("Q")
        for item in items:
            hashes.extend(_hashes(item))
            yield item

    def _training(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yields the training examples and sets `in_training`."""
        # with the largest number, so that searchsorted returns a valid index
        arrays = [*self.hashes.values(), array("Q", [2**64 - 1])]
        known = np.unique(np.concatenate([_numbers(hashes) for hashes in arrays]))
        occurs = np.zeros(len(known), dtype=bool)
        pending: list[int] = []

        def look_up() -> None:
            hashes = np.array(pending, dtype=np.uint64)
            at = np.searchsorted(known, hashes)
            occurs[at[known[at] == hashes]] = True
            pending.clear()

        for item in items:
            pending += _hashes(item)
            if len(pending) == LOOKUP_BATCH:
                look_up()
            yield item
        look_up()
        self.in_training = known[occurs]

    def counts(self) -> dict[str, list[Any]]:
        """Returns split -> [number of its examples that occur in training too, number of its
        examples, their unit], for splits with such examples.
        """
        counts = {
            split: int(np.isin(_numbers(hashes), self.in_training).sum())
            for split, hashes in self.hashes.items()
        }
        return {
            split: [count, len(self.hashes[split]), self.unit]
            for split, count in counts.items()
            if count
        }


def _numbers(hashes: "array[int]") -> np.ndarray:
    """Returns the hashes as (n,) uint64, without a copy."""
    return np.frombuffer(hashes, dtype=np.uint64)


def training_last(splits: Iterable[str]) -> list[str]:
    """Returns the splits in order, with training at the end."""
    return sorted(splits, key=lambda split: split == TRAINING)


def _hashes(item: str | tuple[str, str]) -> list[int]:
    """Returns [64-bit hash] of a document or a pair; [] if it is empty."""
    sides = (item,) if isinstance(item, str) else item
    if not all(side.strip() for side in sides):
        return []
    # 0xFE never occurs in utf-8
    return [hash64(b"\xfe".join(side.encode("utf-8", "surrogatepass") for side in sides))]
