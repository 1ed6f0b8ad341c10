"""Counts examples of validation and test that occur in training too, by 64-bit hashes, while the
splits are read.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from xformer_kit.data.corpus import Corpus
from xformer_kit.data.order import hash64

TRAINING = "train"


class Overlap:
    """Counts equal pairs, or equal documents of a text. All splits pass through `observe`, training
    last.

    Memory: about 100 bytes per example of the other splits. Pairs with an empty side are not
    counted; texts without documents neither.
    """

    def __init__(self, corpus: Corpus):
        self.unit = "pairs" if corpus.form == "pairs" else "documents"
        self.enabled = corpus.form == "pairs" or corpus.documents
        self.hashes: dict[str, list[int]] = {}  # split -> hashes of its examples
        self.in_training: set[int] = set()  # hashes that occur in training too

    def observe(self, split: str, items: Iterable[Any]) -> Iterator[Any]:
        """Yields the examples of a split unchanged. Stores their hashes or, for training, those
        that occur in the other splits.
        """
        known = {*chain.from_iterable(self.hashes.values())}
        for item in items:
            if self.enabled and split == TRAINING:
                self.in_training |= known.intersection(_hashes(item))
            elif self.enabled:
                self.hashes.setdefault(split, []).extend(_hashes(item))
            yield item

    def counts(self) -> dict[str, list[Any]]:
        """Returns split -> [number of its examples that occur in training too, number of its
        examples, their unit], for splits with such examples.
        """
        return {
            split: [count, len(hashes), self.unit]
            for split, hashes in self.hashes.items()
            if (count := sum(item in self.in_training for item in hashes))
        }


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
