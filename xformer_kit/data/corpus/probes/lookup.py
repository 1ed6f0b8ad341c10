"""Probes of lookup: the token after an earlier occurrence of a token is predicted."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

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
from xformer_kit.registry import Fault, at_least
from xformer_kit.registry.messages import in_open_range


@CORPORA.register("recall", also_called=("mqar", "associative_recall"), similar=("zoology",))
@dataclass(kw_only=True, eq=False)
class Recall(Probe):
    """Multi-query associative recall (Arora et al., 2023, arXiv:2312.04927, section 3 and
    appendix): pairs of a key and its value, then every key once more, each followed by its value,
    which is predicted. Filler words are between them.

        k3 v1 k0 v7   v2 v2 k0 [v7] v5 v0 k3 [v1]

    Half of the words are keys, half values; the keys of an example differ, and so do its values.
    With n slots of two words after the pairs, a key falls on slot i with probability ~ i^(power -
    1): the smaller `power`, the sooner it is repeated.

    The defaults are the smallest task of figure 2, whose others have (length, pairs) of (128, 8),
    (256, 16), (512, 64), and filler=blank, as in the authors' code
    (github.com/HazyResearch/zoology, experiments of figure 2). Here a repeated key is followed by
    its value, as in a text; there by a filler. Here random fillers are values, so that no key has
    two values; there all words.
    """

    bounds = MappingProxyType({"vocabulary": 2, "length": 4, "pairs": 1})

    vocabulary: int = 8192  # words: half are keys, half are values
    length: int = 64  # tokens of an example
    pairs: int = 4  # keys with their values; each is repeated once
    power: float = 0.01  # of the distribution of the gaps; 1 is uniform
    # fillers between the repeated keys: values, or one separate word
    filler: Literal["random", "blank"] = "random"

    def __post_init__(self) -> None:
        self.slots = (self.length - 2 * self.pairs) // 2
        weights = np.arange(1, self.slots + 1, dtype=np.float64) ** (self.power - 1)
        self.weights = weights / weights.sum()

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        # above 50, weights of many slots overflow
        yield from in_open_range(options, "Try 0.01.", closed=True, power=(0, 50))
        yield from at_least(options, "(4 * pairs)", length=4 * options.pairs)
        if options.vocabulary % 2 or options.vocabulary < 2 * options.pairs:
            yield Fault(
                "vocabulary",
                "must be even and at least 2 * pairs, as keys and values of an example differ",
                f"{options.vocabulary} and pairs={options.pairs}",
            )

    def words(self) -> list[str]:
        half = self.vocabulary // 2
        return (
            numbered_words("k", half) + numbered_words("v", half) + ["."] * (self.filler == "blank")
        )

    @property
    def max_seq_len(self) -> int:
        return self.length

    def make_example(self, draw: RandomStream, split: str) -> LabelledTokens:
        half, n = self.vocabulary // 2, self.pairs
        keys, values = draw.sample(half, n), half + draw.sample(half, n)
        tokens = np.empty(self.length, dtype=np.int64)
        tokens[2 * n :] = (
            self.vocabulary
            if self.filler == "blank"
            else half + draw.integers(half, self.length - 2 * n)
        )
        tokens[0 : 2 * n : 2], tokens[1 : 2 * n : 2] = keys, values
        # Without replacement by weight: the smallest of exponential times (Efraimidis & Spirakis,
        # 2006, algorithm A).
        times = -np.log(draw.uniform(self.slots)) / self.weights
        at = 2 * n + 2 * np.argsort(times, kind="stable")[:n]
        tokens[at], tokens[at + 1] = keys, values
        predicted = np.zeros(self.length, dtype=bool)
        predicted[at + 1] = True
        return tokens, predicted


@CORPORA.register("induction", also_called=("induction_heads",))
@dataclass(kw_only=True, eq=False)
class Induction(SizedProbe):
    """Random words with one mark among them; at the end the mark is repeated, and the word after
    the first mark is predicted (Olsson et al., 2022, arXiv:2209.11895; in this form Gu & Dao, 2023,
    arXiv:2312.00752, section 4.1.2).

        w3 w0 * w7 w1 w2 * [w7]

    The defaults are the training of table 2 and section E.1 there: length 256, 16 words. Its test
    lengths are the powers of 2 from 64 to 1,048,576: test_length.
    """

    bounds = MappingProxyType({"vocabulary": 1, "length": 4, "shortest": 4, "test_length": 4})

    vocabulary: int = 16  # words, without the mark
    length: int = 256  # tokens of an example, with its last two

    def words(self) -> list[str]:
        return [*numbered_words("w", self.vocabulary), "*"]

    def make_example(self, draw: RandomStream, split: str) -> LabelledTokens:
        length = self.draw_length(draw, split)
        tokens = draw.integers(self.vocabulary, length)
        at = draw.integer(0, length - 4)
        tokens[[at, -2]] = self.vocabulary
        tokens[-1] = tokens[at + 1]
        return label_from(tokens, length - 1)
