"""Probes of formal languages and arithmetic: addition, parity, brackets."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from xformer_kit.data.corpus.base import CORPORA
from xformer_kit.data.corpus.probes.base import LabelledTokens, SizedProbe, label_from
from xformer_kit.data.random_stream import RandomStream
from xformer_kit.registry import Fault

PLUS, EQUALS = 10, 11
BRACKETS = "()", "[]", "{}", "<>"


@CORPORA.register("addition", also_called=("add",), similar=("arithmetic",))
@dataclass(kw_only=True, eq=False)
class Addition(SizedProbe):
    """The sum of two numbers, digit by digit: both with the same number of digits, leading zeros
    included, and the sum with one more. Reversed, the lowest digit of the sum comes first, which a
    model reading left to right learns sooner (Lee et al., 2023, arXiv:2307.03381, section 3).

        9 5 + 0 7 = [2] [0] [1]
    """

    length: int = 10  # digits of each number
    answer: Literal["reversed", "plain"] = "reversed"  # the order of the digits of the sum

    def words(self) -> list[str]:
        return [*"0123456789+="]

    @property
    def max_seq_len(self) -> int:
        return 3 * self.max_length + 3

    def make_example(self, draw: RandomStream, split: str) -> LabelledTokens:
        n = self.draw_length(draw, split)
        digits = draw.integers(10, 2 * n)
        first, second = digits[:n], digits[n:]
        total, carry = [], 0
        for column in (first + second)[::-1].tolist():
            carry, digit = divmod(column + carry, 10)
            total.append(digit)
        total.append(carry)
        digits_of_sum = total if self.answer == "reversed" else total[::-1]
        tokens = np.concatenate([first, [PLUS], second, [EQUALS], digits_of_sum])
        return label_from(tokens, 2 * n + 2)


@CORPORA.register("parity", similar=("xor",))
@dataclass(kw_only=True, eq=False)
class Parity(SizedProbe):
    """Whether the number of ones is even or odd, which no transformer of fixed depth learns at
    every length (Hahn, 2020, arXiv:1906.06755; Chiang & Cholak, 2022, arXiv:2202.12172). With
    `steps` it is predicted after every bit.

        1 0 1 1 | [odd]          steps: 1 [odd] 0 [odd] 1 [even] 1 [odd]
    """

    length: int = 32  # bits
    steps: bool = False  # whether the parity so far is predicted after every bit

    def words(self) -> list[str]:
        return ["0", "1", "even", "odd", "|"]

    @property
    def max_seq_len(self) -> int:
        return 2 * self.max_length if self.steps else self.max_length + 2

    def make_example(self, draw: RandomStream, split: str) -> LabelledTokens:
        bits = draw.integers(2, self.draw_length(draw, split))
        if not self.steps:
            return label_from(np.concatenate([bits, [4, 2 + bits.sum() % 2]]), len(bits) + 1)
        tokens = np.stack([bits, 2 + bits.cumsum() % 2], axis=1).reshape(-1)
        return tokens, np.arange(len(tokens)) % 2 == 1


@CORPORA.register("dyck", also_called=("brackets", "parentheses"))
@dataclass(kw_only=True, eq=False)
class Dyck(SizedProbe):
    """Balanced brackets of several types up to a depth; the closing brackets are predicted
    (Hewitt et al., 2020, arXiv:2010.07515; Yao et al., 2021, arXiv:2105.11115). Each bracket
    opens or closes with equal probability if both are possible; the depth is 0 at both ends.

        ( [ [] ] () [)]      here with types=2, depth=3
    """

    bounds = MappingProxyType(
        {"types": 1, "depth": 1, "length": 2, "shortest": 2, "test_length": 2}
    )

    types: int = 2  # kinds of brackets: k
    depth: int = 8  # brackets open at once: m
    length: int = 64  # tokens, even

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        for name in ("length", "shortest", "test_length"):
            value = getattr(options, name)
            if value is not None and value % 2:
                yield Fault(name, "must be even, as every bracket is closed", value)

    def words(self) -> list[str]:
        """The opening brackets, then the closing ones."""
        numbered = [(f"({k}", f"{k})") for k in range(len(BRACKETS), self.types)]
        opening, closing = zip(*BRACKETS[: self.types], *numbered, strict=True)
        return [*opening, *closing]

    def draw_length(self, draw: RandomStream, split: str) -> int:
        length = super().draw_length(draw, split)
        return length - length % 2

    def make_example(self, draw: RandomStream, split: str) -> LabelledTokens:
        length = self.draw_length(draw, split)
        kinds = draw.integers(2 * self.types, length).tolist()  # type, and whether it opens
        tokens: list[int] = []
        open_types: list[int] = []  # types of the open brackets
        for remaining, kind in zip(range(length, 0, -1), kinds, strict=True):
            depth = len(open_types)
            if depth == 0 or (depth < min(self.depth, remaining) and kind < self.types):
                open_types.append(kind % self.types)
                tokens.append(kind % self.types)
            else:
                tokens.append(self.types + open_types.pop())
        array = np.array(tokens, dtype=np.int64)
        return array, array >= self.types
