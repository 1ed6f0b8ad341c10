"""Probes of copying: the words of an example are repeated in the same order, reversed, sorted, or
in part.
"""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from xformer_kit.data.corpus.base import CORPORA
from xformer_kit.data.corpus.probes.base import (
    LabelledTokens,
    Probe,
    SizedProbe,
    label_from,
    numbered_words,
)
from xformer_kit.data.random_stream import RandomStream
from xformer_kit.registry import at_least


@dataclass(kw_only=True, eq=False)
class _ReorderedWords(SizedProbe):
    """Base: words, a bar, and the reordered words, which are predicted."""

    bounds = MappingProxyType({"vocabulary": 1, **SizedProbe.bounds})

    vocabulary: int = 26  # words, without the bar

    def words(self) -> list[str]:
        return [*numbered_words("w", self.vocabulary), "|"]

    @property
    def max_seq_len(self) -> int:
        return 2 * self.max_length + 1

    def make_example(self, draw: RandomStream, split: str) -> LabelledTokens:
        words = draw.integers(self.vocabulary, self.draw_length(draw, split))
        tokens = np.concatenate([words, [self.vocabulary], self.answer(words)])
        return label_from(tokens, len(words) + 1)

    def answer(self, words: np.ndarray) -> np.ndarray:
        raise NotImplementedError


@CORPORA.register("copy", similar=("repeat",))
class Copy(_ReorderedWords):
    """The words are repeated (Graves et al., 2014, arXiv:1410.5401, section 4.1; with recent models
    Jelassi et al., 2024, arXiv:2402.01032).

        w3 w0 w3 | [w3] [w0] [w3]

    The 26 words are the letters of the latter, whose code
    (github.com/sjelassi/transformers_ssm_copy) trains by default on strings of 8 to 50, shortest=8
    and length=50, and also has the end of the string predicted, which is not predicted here.
    """

    def answer(self, words: np.ndarray) -> np.ndarray:
        return words


@CORPORA.register("reverse", also_called=("reversal",))
class Reverse(_ReorderedWords):
    """The words in reverse order (Grefenstette et al., 2015, arXiv:1506.02516, section 4.1).

    w3 w0 w1 | [w1] [w0] [w3]
    """

    def answer(self, words: np.ndarray) -> np.ndarray:
        return words[::-1]


@CORPORA.register("sort", also_called=("sorting",))
class Sort(_ReorderedWords):
    """The words in the order of their numbers, each as often as it occurs (Graves et al., 2014,
    arXiv:1410.5401, section 4.5, has separate keys to sort by).

        w3 w0 w3 w1 | [w0] [w1] [w3] [w3]
    """

    def answer(self, words: np.ndarray) -> np.ndarray:
        return np.sort(words)


@CORPORA.register("selective_copy", also_called=("selective_copying",))
@dataclass(kw_only=True, eq=False)
class SelectiveCopy(Probe):
    """The words at random positions among blanks are repeated (Gu & Dao, 2023, arXiv:2312.00752,
    sections 3.1, 4.1.1 and E.1: length 4,096 and 16 words of a vocabulary of 16 with the blank, so
    vocabulary=15 here).

        . w3 . . w0 . | [w3] [w0]
    """

    bounds = MappingProxyType({"vocabulary": 1, "length": 1, "marked": 1, "test_length": 1})

    vocabulary: int = 16  # words, without the blank and the bar
    length: int = 256  # tokens before the bar
    marked: int = 16  # words among them
    test_length: int | None = None  # of the test set; null is as in training

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        marked = dict.fromkeys(("length", "test_length"), options.marked)
        yield from at_least(options, "(marked)", **marked)

    def words(self) -> list[str]:
        return [*numbered_words("w", self.vocabulary), ".", "|"]

    @property
    def max_seq_len(self) -> int:
        return max(self.length, self.test_length or 0) + 1 + self.marked

    def make_example(self, draw: RandomStream, split: str) -> LabelledTokens:
        length = self.test_length or self.length if split == "test" else self.length
        words = draw.integers(self.vocabulary, self.marked)
        before = np.full(length, self.vocabulary, dtype=np.int64)
        before[np.sort(draw.sample(length, self.marked))] = words
        return label_from(np.concatenate([before, [self.vocabulary + 1], words]), length + 1)
