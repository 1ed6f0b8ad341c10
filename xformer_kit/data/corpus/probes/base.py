"""What is an example of a probe? Tokens, and which of them are asked for: a pure function of
(examples_seed, split, index).
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from xformer_kit.data.corpus.base import CORPORA, Corpus
from xformer_kit.data.draw import Draw
from xformer_kit.registry import Options, at_least

FRESH = 2**31  # training examples: more than any run sees
MANY = 2**20  # words and tokens that an option may ask for


class Probe(Corpus):
    """What every probe can do. A part defines `words`, `longest` and `write`, and has the options
    examples and examples_seed.

    A training stream that never repeats (2^31 examples), and fixed sets for validation and test.
    The words are the whole vocabulary, each one token, whatever the tokenizer of the config.
    """

    form = "labelled"
    splits = ("train", "valid", "test")
    examples: int
    examples_seed: int

    def words(self) -> list[str]:
        """The vocabulary: word i is token i. No word has a space."""
        raise NotImplementedError

    @property
    def longest(self) -> int:
        """Tokens of the longest example of any split."""
        raise NotImplementedError

    def write(self, draw: Draw, split: str) -> tuple[np.ndarray, np.ndarray]:
        """An example: (tokens int64, asked bool), both (t,). Asked: predict this token from those
        before it.
        """
        raise NotImplementedError

    def dataset(self, split: str) -> "Labelled":
        return Labelled(self, split)

    def stamp(self) -> list[Any]:
        name = next(name for name, part in CORPORA.items() if part is type(self))
        return [name, {option: getattr(self, option) for option in CORPORA.options(name)}]

    def fingerprint(self) -> str:
        """sha256 of the name, the options and the first examples of each split."""
        digest = hashlib.sha256(json.dumps(self.stamp(), sort_keys=True).encode())
        for split in self.splits:
            data = self.dataset(split)
            for i in range(min(16, len(data))):
                digest.update(data[i]["tokens"].tobytes() + data[i]["labels"].tobytes())
        return digest.hexdigest()

    def texts(self, split: str) -> Iterator[str]:
        """The examples as they are read by people: their words, one example a line."""
        words, data = self.words(), self.dataset(split)
        for i in range(len(data)):
            yield " ".join([words[token] for token in data[i]["tokens"].tolist()]) + "\n"


class Labelled:
    """The examples of a probe's split: {"tokens": (t,) int64, "labels": (t,) int64, -1 where
    nothing is asked}.
    """

    def __init__(self, probe: Probe, split: str):
        self.probe = probe
        self.split = split
        self.length = FRESH if split == "train" else probe.examples

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        i = range(self.length)[i]  # IndexError beyond the end; negative from the end
        tokens, asked = self.probe.write(Draw(self.probe.examples_seed, self.split, i), self.split)
        return {"tokens": tokens, "labels": np.where(asked, tokens, -1)}


class Sized(Probe):
    """A probe whose examples have `length` of something: train and valid `shortest` to `length`,
    test `test_length`.
    """

    length: int
    shortest: int | None
    test_length: int | None

    def drawn(self, draw: Draw, split: str) -> int:
        """The length of an example."""
        if split == "test" and self.test_length is not None:
            return self.test_length
        return self.length if self.shortest is None else draw.one(self.shortest, self.length)

    @property
    def most(self) -> int:
        """The largest length of any split."""
        return max(self.length, self.test_length or 0)


def faults(options: Options, **bounds: float) -> Iterator[str]:
    """Sentences for sizes below their bounds or too large, and for what all probes share."""
    yield from at_least(options, examples=1, **bounds)  # type: ignore[arg-type]
    for name in bounds:
        value = getattr(options, name)
        if value is not None and value > MANY:
            yield f"{name}: must be at most {MANY:,}; got {value:,}. Try {bounds[name] * 16}."
    if options.shortest is not None and options.shortest > options.length:
        yield (
            f"shortest: must be at most length; got {options.shortest} and {options.length}. Try"
            f" {options.length}."
        )


def ask_from(tokens: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens, and that all from `start` on are asked."""
    return tokens, np.arange(len(tokens)) >= start


def numbered(letter: str, count: int) -> list[str]:
    """a0, a1, ..."""
    return [f"{letter}{i}" for i in range(count)]
