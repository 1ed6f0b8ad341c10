"""Examples of validation and test that occur in training too, counted by 64-bit hashes as the
splits are read.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from xformer_kit.data.corpus import Corpus
from xformer_kit.data.order import hash64

AT_ONCE = 4096  # training examples that are looked up at once
SPLIT = "train"


class Overlap:
    """Counts equal pairs, or equal documents of a text. The splits pass through `of`, that of
    training last.

    Memory: 8 bytes per example of the other splits, and 9 per different one of them once training
    passes. Pairs with an empty side count nowhere. Of a text without documents nothing is counted.
    """

    def __init__(self, corpus: Corpus):
        self.what = "pairs" if corpus.form == "pairs" else "documents"
        self.counted = corpus.form == "pairs" or corpus.documents
        self.others: dict[str, array[int]] = {}  # split -> the hash of each of its examples
        self.met = _numbers(array("Q"))  # those hashes that occur in training too

    def of(self, split: str, items: Iterable[Any]) -> Iterable[Any]:
        """The same examples."""
        if not self.counted:
            return items
        return self._training(items) if split == SPLIT else self._other(split, items)

    def _other(self, split: str, items: Iterable[Any]) -> Iterator[Any]:
        hashes = self.others[split] = array("Q")
        for item in items:
            hashes.extend(_hashes(item))
            yield item

    def _training(self, items: Iterable[Any]) -> Iterator[Any]:
        # with the largest number, so that each one has a place in it
        others = [*self.others.values(), array("Q", [2**64 - 1])]
        known = np.unique(np.concatenate([_numbers(hashes) for hashes in others]))
        met = np.zeros(len(known), dtype=bool)
        some: list[int] = []

        def look_up() -> None:
            found = np.array(some, dtype=np.uint64)
            at = np.searchsorted(known, found)
            met[at[known[at] == found]] = True
            some.clear()

        for item in items:
            some += _hashes(item)
            if len(some) == AT_ONCE:
                look_up()
            yield item
        look_up()
        self.met = known[met]

    def counts(self) -> dict[str, list[Any]]:
        """Split -> [its examples that occur in training too, all its examples, what they are];
        without splits of none.
        """
        found = {split: np.isin(_numbers(some), self.met) for split, some in self.others.items()}
        return {k: [int(met.sum()), len(met), self.what] for k, met in found.items() if met.any()}


def _numbers(hashes: "array[int]") -> np.ndarray:
    return np.frombuffer(hashes, dtype=np.uint64)


def training_last(splits: Iterable[str]) -> list[str]:
    return sorted(splits, key=lambda split: split == SPLIT)


def _hashes(item: str | tuple[str, str]) -> list[int]:
    """64 bits of a document or of a pair; none of an empty one."""
    sides = (item,) if isinstance(item, str) else item
    if not all(side.strip() for side in sides):
        return []
    # 0xFE never occurs in utf-8
    return [hash64(b"\xfe".join(side.encode("utf-8", "surrogatepass") for side in sides))]
