"""Base of the probes: made-up examples, each a pure function of (examples_seed, split, index)."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from xformer_kit.data.corpus.base import Corpus
from xformer_kit.data.random_stream import RandomStream
from xformer_kit.registry import Fault, at_least

FRESH = 2**31  # training examples: more than any run reads
MANY = 2**20  # largest number of words or tokens that an option accepts

Labelled = tuple[np.ndarray, np.ndarray]  # tokens int64, and which are predicted, bool: (t,) each


@dataclass(kw_only=True, eq=False)
class Probe(Corpus):
    """Base: a probe defines `bounds`, `words`, `longest` and `write`.

    A training stream that never repeats (2^31 examples), and fixed sets for validation and test.
    The words are the whole vocabulary, each one token, whatever the tokenizer of the config.
    """

    form = "labelled"
    splits = ("train", "valid", "test")
    bounds: ClassVar[Mapping[str, int]] = {}  # option -> smallest value; the largest is MANY

    examples: int = 1000  # of each of valid and test
    examples_seed: int = 0  # of all examples, also of valid and test

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, examples=1, **cls.bounds)
        for name, least in cls.bounds.items():
            value = getattr(options, name)
            if value is not None and value > MANY:
                yield Fault(
                    name,
                    f"must be at most {MANY:,}",
                    got=f"{value:,}",
                    fix=f"Try {least * 16}.",
                )
        if options.shortest is not None and options.shortest > options.length:
            yield Fault(
                "shortest",
                "must be at most length",
                got=f"{options.shortest} and {options.length}",
                fix=f"Try {options.length}.",
            )

    def words(self) -> list[str]:
        """The vocabulary: word i is token i. No word has a space."""
        raise NotImplementedError

    @property
    def longest(self) -> int:
        """Tokens of the longest example of any split."""
        raise NotImplementedError

    def write(self, draw: RandomStream, split: str) -> Labelled:
        """An example: its tokens, and which of them are predicted from those before them."""
        raise NotImplementedError

    def dataset(self, split: str) -> "ProbeExamples":
        return ProbeExamples(self, split)

    def fingerprint(self) -> str:
        """sha256 of the name, the options and the first examples of each split."""
        digest = hashlib.sha256(json.dumps(self.stamp(), sort_keys=True).encode())
        for split in self.splits:
            data = self.dataset(split)
            for i in range(min(16, len(data))):
                digest.update(data[i]["tokens"].tobytes() + data[i]["labels"].tobytes())
        return digest.hexdigest()

    def texts(self, split: str) -> Iterator[str]:
        """The examples in words, one example a line."""
        words, data = self.words(), self.dataset(split)
        for i in range(len(data)):
            yield " ".join([words[token] for token in data[i]["tokens"].tolist()]) + "\n"


class ProbeExamples:
    """The examples of a probe's split: {"tokens": (t,) int64, "labels": (t,) int64}. A label is -1
    where nothing is predicted.
    """

    def __init__(self, probe: Probe, split: str):
        self.probe = probe
        self.split = split
        self.length = FRESH if split == "train" else probe.examples

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        i = range(self.length)[i]  # IndexError beyond the end; negative from the end
        draw = RandomStream(self.probe.examples_seed, self.split, i)
        tokens, predicted = self.probe.write(draw, self.split)
        return {"tokens": tokens, "labels": np.where(predicted, tokens, -1)}


@dataclass(kw_only=True, eq=False)
class SizedProbe(Probe):
    """A probe with a length: train and valid have `shortest` to `length`, test `test_length`."""

    bounds = MappingProxyType({"length": 1, "shortest": 1, "test_length": 1})

    length: int = 32  # words before the bar
    # train and valid draw their lengths from here on; null is always `length`
    shortest: int | None = None
    test_length: int | None = None  # of the test set; null is as in training

    def drawn(self, draw: RandomStream, split: str) -> int:
        """The length of an example."""
        if split == "test" and self.test_length is not None:
            return self.test_length
        return self.length if self.shortest is None else draw.one(self.shortest, self.length)

    @property
    def most(self) -> int:
        """The largest length of any split."""
        return max(self.length, self.test_length or 0)

    @property
    def longest(self) -> int:
        return self.most


def predicted_from(tokens: np.ndarray, start: int) -> Labelled:
    """The tokens, of which all from `start` on are predicted."""
    return tokens, np.arange(len(tokens)) >= start


def numbered(letter: str, count: int) -> list[str]:
    """a0, a1, ..."""
    return [f"{letter}{i}" for i in range(count)]
