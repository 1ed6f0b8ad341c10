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

    Memory: 8 bytes per example of the other splits, and 17 per different one of them once training
    passes. Pairs with an empty side count nowhere. Of a text without documents nothing is counted.
    """

    def __init__(self, corpus: Corpus):
        self.what = "pairs" if corpus.form == "pairs" else "documents"
        self.counted = corpus.form == "pairs" or corpus.documents
        self.others: dict[str, array[int]] = {}
        # split -> (hashes, sorted; number of each; whether it occurs in training)
        self._known: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def of(self, split: str, items: Iterable[Any]) -> Iterable[Any]:
        """The same examples."""
        if not self.counted:
            return items
        return self._training(items) if split == SPLIT else self._other(split, items)

    def _other(self, split: str, items: Iterable[Any]) -> Iterator[Any]:
        hashes = self.others[split] = array("Q")
        for item in items:
            if (found := _hash(item)) is not None:
                hashes.append(found)
            yield item

    def _training(self, items: Iterable[Any]) -> Iterator[Any]:
        for split, hashes in self.others.items():
            there, times = np.unique(np.frombuffer(hashes, dtype=np.uint64), return_counts=True)
            self._known[split] = there, times, np.zeros(len(there), dtype=bool)
        some: list[int] = []
        for item in items:
            if (found := _hash(item)) is not None:
                some.append(found)
            if len(some) == AT_ONCE:
                self._look_up(some)
                some = []
            yield item
        self._look_up(some)

    def _look_up(self, hashes: list[int]) -> None:
        found = np.array(hashes, dtype=np.uint64)
        for there, _, met in self._known.values():
            at = np.searchsorted(there, found)
            inside = at < len(there)
            at = at[inside]
            met[at[there[at] == found[inside]]] = True

    def counts(self) -> dict[str, list[Any]]:
        """Split -> [its examples that occur in training too, all its examples, what they are];
        without splits of none.
        """
        found = {split: int(times[met].sum()) for split, (_, times, met) in self._known.items()}
        return {
            split: [count, len(self.others[split]), self.what]
            for split, count in found.items()
            if count
        }


def training_last(splits: Iterable[str]) -> list[str]:
    return sorted(splits, key=lambda split: split == SPLIT)


def _hash(item: str | tuple[str, str]) -> int | None:
    """64 bits of a document or of a pair; None for an empty one."""
    sides = (item,) if isinstance(item, str) else item
    if not all(side.strip() for side in sides):
        return None
    # 0xFE never occurs in utf-8
    return hash64(b"\xfe".join(side.encode("utf-8", "surrogatepass") for side in sides))
