"""Each law of corpora is broken by a faulty corpus."""

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from breaking import registered
from kind_laws import broken_kind_test

from xformer_kit.data.corpus import CORPORA, Corpus
from xformer_kit.data.corpus.base import PairCorpus
from xformer_kit.data.corpus.probes.base import Probe, label_from
from xformer_kit.laws.kinds import KIND_LAWS, check_laws_of_kind


@dataclass(kw_only=True, eq=False)
class Squares(PairCorpus):
    """A good one: numbers and their squares."""

    count: int = 50
    separator: str = "="

    def pairs(self, split):
        for n in range(self.count):
            if (n % 10 == 0) == (split == "valid"):
                yield f"{n}", f"{self.separator}{n * n}"


class DrawnOrder(Squares):
    def pairs(self, split):
        yield from sorted(super().pairs(split), key=lambda _: random.random())


class ReadOnce(Squares):
    """Keeps the place where it stopped reading."""

    done = False

    def pairs(self, split):
        if not self.done:
            yield from super().pairs(split)
        self.done = True


class OneSplit(Squares):
    def pairs(self, split):
        yield from super().pairs("train")


class ForgetsWhenPickled(Squares):
    extra = 0

    def __getstate__(self):
        return {**vars(self), "count": 20}


@dataclass(kw_only=True, eq=False)
class StampOfPath(Squares):
    """A pair for each line of a file, which the stamp names."""

    path: str = __file__

    def pairs(self, split):
        lines = Path(self.path).read_text().splitlines()
        yield from ((f"{split}{n}", line) for n, line in enumerate(lines))

    def fingerprint(self):
        return self.path


class ConstantStamp(Squares):
    def stamp(self):
        return ["squares"]


class ConstantFingerprint(Squares):
    def fingerprint(self):
        return "0"


class DrawnFingerprint(Squares):
    def fingerprint(self):
        return str(random.random())


@dataclass(kw_only=True, eq=False)
class Doubles(Probe):
    """A good one: a number below 50 twice; of labelled examples."""

    number: int = 50

    def words(self):
        return [str(n) for n in range(self.number)]

    @property
    def max_seq_len(self):
        return 4

    def make_example(self, draw, split):
        first = np.array([draw.integer(0, self.number - 1) for _ in range(4)])
        return label_from(np.concatenate([first, first]), 4)


class CountsReads(Doubles):
    reads = 0

    def make_example(self, draw, split):
        self.reads += 1
        tokens, predicted = super().make_example(draw, split)
        return (tokens + self.reads) % self.number, predicted


class Grows(Doubles):
    """Has one example more each time."""

    def dataset(self, split):
        dataset = super().dataset(split)
        lengths = iter(range(10, 1000))
        dataset.__class__ = type(
            "Growing", (type(dataset),), {"__len__": lambda self: next(lengths)}
        )
        return dataset


class OtherInAProcess(Doubles):
    """Reads the processes's own state."""

    main = True

    def __getstate__(self):
        return {**vars(self), "main": False}

    def make_example(self, draw, split):
        tokens, predicted = super().make_example(draw, split)
        return (tokens if self.main else tokens[::-1].copy()), predicted


class Text(Corpus):
    """One text without documents."""

    def texts(self, split):
        yield f"A text for {split}.\n" * 10


ARGUMENTS = [
    ("again", DrawnOrder, "items of 'train' are drawn from Python's `random`"),
    ("again", ReadOnce, "the items of 'train' are others a second time"),
    ("splits", OneSplit, "45 items of 'valid' are training items"),
    ("loader processes", ForgetsWhenPickled, "a pickled corpus has other items of 'train'"),
    ("fingerprint", StampOfPath, "the stamp does not change with the content of path"),
    ("fingerprint", ConstantStamp, "the stamp does not change with count=51, and items do"),
    ("fingerprint", ConstantFingerprint, "the fingerprint does not change with count=51"),
    ("fingerprint", DrawnFingerprint, "the fingerprint of a new corpus is another one"),
    ("any order", CountsReads, "example 0 of 'train' depends on those read before"),
    ("any order", Grows, "'train' has 10 examples, and later"),
]

test_a_broken_corpus_is_caught = broken_kind_test("data", ARGUMENTS)


# Starting a process takes seconds.
test_a_broken_corpus_is_caught_in_a_process = pytest.mark.extended(
    broken_kind_test(
        "data",
        [("loader processes", OtherInAProcess, "example 0 is another one in a loader process")],
    )
)


def test_every_law_catches_a_broken_corpus():
    assert KIND_LAWS["data"].keys() == {law for law, *_ in ARGUMENTS}


@pytest.mark.extended
@pytest.mark.parametrize(
    ("corpus", "skipped"),
    [(Squares, {"any order"}), (Doubles, {"splits"}), (Text, {"any order", "splits"})],
)
def test_a_corpus_keeps_all_that_apply(corpus, skipped):
    with registered(CORPORA, corpus):
        outcomes = {one.law: one.verdict for one in check_laws_of_kind("data", "broken")}
    assert outcomes == {law: "skipped" if law in skipped else "ok" for law in KIND_LAWS["data"]}
