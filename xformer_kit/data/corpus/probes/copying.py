"""Probes that ask for the words of an example once more: the same, some of them, backwards, or
sorted.
"""

import numpy as np

from xformer_kit.data.corpus.base import CORPORA
from xformer_kit.data.corpus.probes.base import Probe, Sized, ask_from, faults, numbered
from xformer_kit.data.draw import Draw


class _Again(Sized):
    """Words, a bar, and the words in another order, which is asked."""

    def __init__(
        self,
        *,
        vocabulary: int = 26,  # words beside the bar
        length: int = 32,  # words before the bar
        shortest: (
            int | None
        ) = None,  # train and valid draw their lengths from here on; null is always `length`
        test_length: int | None = None,  # of the test set; null is as in training
        examples: int = 1000,  # of each of valid and test
        examples_seed: int = 0,  # of all examples, also of valid and test
    ):
        self.vocabulary = vocabulary
        self.length = length
        self.shortest = shortest
        self.test_length = test_length
        self.examples = examples
        self.examples_seed = examples_seed

    @classmethod
    def check(cls, options, context):
        yield from faults(options, vocabulary=1, length=1, shortest=1, test_length=1)

    def words(self) -> list[str]:
        return [*numbered("w", self.vocabulary), "|"]

    @property
    def longest(self) -> int:
        return 2 * self.most + 1

    def write(self, draw: Draw, split: str) -> tuple[np.ndarray, np.ndarray]:
        given = draw.below(self.vocabulary, self.drawn(draw, split))
        return ask_from(
            np.concatenate([given, [self.vocabulary], self.answer(given)]), len(given) + 1
        )

    def answer(self, given: np.ndarray) -> np.ndarray:
        raise NotImplementedError


@CORPORA.register("copy", also_called=("repeat",))
class Copy(_Again):
    """Say the words again (Graves et al., 2014, arXiv:1410.5401, section 4.1; with models of today
    Jelassi et al., 2024, arXiv:2402.01032).

        w3 w0 w3 | [w3] [w0] [w3]

    The 26 words are the letters of the latter, whose code
    (github.com/sjelassi/transformers_ssm_copy) trains on strings of 8 to 50 unless told otherwise,
    shortest=8 and length=50, and asks for the end of the string too, which is not asked here.
    """

    def answer(self, given: np.ndarray) -> np.ndarray:
        return given


@CORPORA.register("reverse", also_called=("reversal",))
class Reverse(_Again):
    """Say the words backwards (Grefenstette et al., 2015, arXiv:1506.02516, section 4.1).

    w3 w0 w1 | [w1] [w0] [w3]
    """

    def answer(self, given: np.ndarray) -> np.ndarray:
        return given[::-1]


@CORPORA.register("sort", also_called=("sorting",))
class Sort(_Again):
    """Say the words in the order of their numbers, each as often as it was given (Graves et al.,
    2014, arXiv:1410.5401, section 4.5, has keys of its own to sort by).

        w3 w0 w3 w1 | [w0] [w1] [w3] [w3]
    """

    def answer(self, given: np.ndarray) -> np.ndarray:
        return np.sort(given)


@CORPORA.register("selective_copy", also_called=("selective_copying",))
class SelectiveCopy(Probe):
    """Say again the words that stand, in random places, among blanks (Gu & Dao, 2023,
    arXiv:2312.00752, sections 3.1, 4.1.1 and E.1: length 4,096 and 16 words of a vocabulary of 16
    with the blank, so vocabulary=15 here).

        . w3 . . w0 . | [w3] [w0]
    """

    def __init__(
        self,
        *,
        vocabulary: int = 16,  # words beside the blank and the bar
        length: int = 256,  # tokens before the bar
        marked: int = 16,  # words among them
        test_length: int | None = None,  # of the test set; null is as in training
        examples: int = 1000,  # of each of valid and test
        examples_seed: int = 0,  # of all examples, also of valid and test
    ):
        self.vocabulary = vocabulary
        self.length = length
        self.marked = marked
        self.test_length = test_length
        self.examples = examples
        self.examples_seed = examples_seed

    @classmethod
    def check(cls, options, context):
        yield from faults(options, vocabulary=1, length=1, marked=1, test_length=1)
        for name in ("length", "test_length"):
            value = getattr(options, name)
            if value is not None and value < options.marked:
                yield (
                    f"{name}: must be at least marked; got {value} and {options.marked}. Try"
                    f" {4 * options.marked}."
                )

    def words(self) -> list[str]:
        return [*numbered("w", self.vocabulary), ".", "|"]

    @property
    def longest(self) -> int:
        return max(self.length, self.test_length or 0) + 1 + self.marked

    def write(self, draw: Draw, split: str) -> tuple[np.ndarray, np.ndarray]:
        length = self.test_length or self.length if split == "test" else self.length
        tokens = np.full(length + 1 + self.marked, self.vocabulary, dtype=np.int64)
        given = draw.below(self.vocabulary, self.marked)
        tokens[np.sort(draw.some(length, self.marked))] = given
        tokens[length], tokens[length + 1 :] = self.vocabulary + 1, given
        return ask_from(tokens, length + 1)
