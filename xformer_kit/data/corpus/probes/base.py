"""Base of the probes: synthetic examples, each a function of (examples_seed, split, index)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from xformer_kit.data.batch import Example
from xformer_kit.data.corpus.base import Corpus
from xformer_kit.data.random_stream import RandomStream
from xformer_kit.registry import at_least, at_most

TRAIN_EXAMPLES = 2**31  # more than any run reads
MAX_OPTION = 2**20  # largest value of an option that is a number of words or tokens

# (t,) tokens, int64; (t,) whether each token is predicted, bool
LabelledTokens = tuple[np.ndarray, np.ndarray]


@dataclass(kw_only=True, eq=False)
class Probe(Corpus):
    """Base of the probes. A probe defines `bounds`, `words`, `max_seq_len` and `make_example`.

    Training examples do not repeat (there are 2^31); validation and test are fixed sets. The words
    are the whole vocabulary, one token each, whatever the tokenizer of the config.
    """

    form = "labelled"
    splits = ("train", "valid", "test")
    bounds: ClassVar[Mapping[str, int]] = {}  # option -> smallest value; the largest is MAX_OPTION

    examples: int = 1000  # of each of valid and test
    examples_seed: int = 0  # of all examples, also of valid and test

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, examples=1, **cls.bounds)
        yield from at_most(options, **dict.fromkeys(cls.bounds, MAX_OPTION))
        yield from at_most(options, "(length)", shortest=options.length)

    def words(self) -> list[str]:
        """Returns the vocabulary: word i is token i. No word contains a space."""
        raise NotImplementedError

    @property
    def max_seq_len(self) -> int:
        """Number of tokens of the longest example of any split."""
        raise NotImplementedError

    def make_example(self, draw: RandomStream, split: str) -> LabelledTokens:
        """Returns an example: its tokens, and whether each is predicted."""
        raise NotImplementedError

    def dataset(self, split: str) -> "ProbeExamples":
        """Returns the examples of a split."""
        return ProbeExamples(self, split)

    def fingerprint(self) -> str:
        """Returns the sha256 of the name, the options and the first examples of each split."""
        digest = hashlib.sha256(json.dumps(self.stamp(), sort_keys=True).encode())
        for split in self.splits:
            data = self.dataset(split)
            for i in range(min(16, len(data))):
                digest.update(data[i]["tokens"].tobytes() + data[i]["labels"].tobytes())
        return digest.hexdigest()


@dataclass(eq=False)
class ProbeExamples:
    """The examples of a probe's split: {"tokens": (t,) int64, "labels": (t,) int64}. The label of a
    token that is not predicted is -1.
    """

    probe: Probe
    split: str

    def __len__(self) -> int:
        return TRAIN_EXAMPLES if self.split == "train" else self.probe.examples

    def __getitem__(self, i: int) -> Example:
        i = range(len(self))[i]  # IndexError beyond the end; negative from the end
        draw = RandomStream(self.probe.examples_seed, self.split, i)
        tokens, predicted = self.probe.make_example(draw, self.split)
        return {"tokens": tokens, "labels": np.where(predicted, tokens, -1)}


@dataclass(kw_only=True, eq=False)
class SizedProbe(Probe):
    """Base of the probes with a length: `shortest` to `length` in train and valid, `test_length` in
    test.
    """

    bounds = MappingProxyType({"length": 1, "shortest": 1, "test_length": 1})

    length: int = 32  # words before the bar
    # shortest length in train and valid; null is `length`
    shortest: int | None = None
    test_length: int | None = None  # of the test set; null is as in training

    def draw_length(self, draw: RandomStream, split: str) -> int:
        """Returns the length of an example, drawn from the stream."""
        if split == "test" and self.test_length is not None:
            return self.test_length
        return self.length if self.shortest is None else draw.integer(self.shortest, self.length)

    @property
    def max_length(self) -> int:
        """The largest length of any split."""
        return max(self.length, self.test_length or 0)

    @property
    def max_seq_len(self) -> int:
        return self.max_length


def label_from(tokens: np.ndarray, start: int) -> LabelledTokens:
    """Returns the tokens, of which those from `start` on are predicted."""
    return tokens, np.arange(len(tokens)) >= start


def numbered_words(letter: str, count: int) -> list[str]:
    """Returns the words a0, a1, ..."""
    return [f"{letter}{i}" for i in range(count)]
