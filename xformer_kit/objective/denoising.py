"""Denoising: sentinels for spans (T5), text infilling (BART), a mixture of denoisers (UL2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from xformer_kit.objective import OBJECTIVES, Example, join_pieces
from xformer_kit.objective.seq2seq import END, START, SourceTarget
from xformer_kit.registry import Fault, at_least, config_error
from xformer_kit.registry.messages import in_open_range

MASK = "<mask>"
Pair = tuple[np.ndarray, np.ndarray]  # the corrupted text, and its repair


class Denoiser(SourceTarget):
    """Base: a pair of a corrupted text and its repair, for an encoder and a decoder.

    reserved: places of a window of seq_len that are reserved for special tokens.
    """

    needs = (("encoder", "decoder"),)
    text_use = "restores"
    reserved = 1
    sentinels: int = 100
    mode_tokens: tuple[str, ...] = ()  # special tokens, one of which is the first of a source

    def corrupt(self, text: np.ndarray, draw: torch.Generator) -> Pair:
        """Returns the corrupted text and its repair, without start and end, of ids (n,), n >= 1."""
        raise NotImplementedError

    def example(self, example: Example, draw: torch.Generator) -> Example:
        """Returns {source, target} of a window of seq_len + 1 tokens; the model reads at most
        seq_len tokens of each.
        """
        window = example["tokens"]
        room = len(window) - 1 - self.reserved
        if room < 1:
            raise config_error(
                "data.seq_len",
                f"must be at least {self.reserved + 1} tokens, {self.reserved} of them special",
                f"{len(window) - 1}",
            )
        text = window[example["tokens.real"]] if "tokens.real" in example else window
        return self.pair(*self.corrupt(text[:room], draw))

    @property
    def holes(self) -> tuple[str, ...]:
        """The special tokens that replace spans, in the order of the spans."""
        return tuple(f"<extra_id_{i}>" for i in range(self.sentinels))

    def corrupt_spans(
        self, text: np.ndarray, rate: float, span: float, draw: torch.Generator
    ) -> Pair:
        """Replaces random spans by sentinels."""
        ranges = spans(len(text), rate, span, self.sentinels, draw)
        return replace_spans(text, ranges, self._special(self.holes))

    def join_with_blanks(
        self, pieces: Sequence[np.ndarray], opening: str | None = None
    ) -> np.ndarray:
        """Returns ids (t,) of a text in pieces with a sentinel between each two, for unknown spans;
        at most as many as `holes`.
        """
        return join_pieces(pieces, self._special(self.holes[: len(pieces) - 1]))

    def _special(self, names: Sequence[str]) -> list[int]:
        """The ids of special tokens."""
        return [self.tokenizer.special(name) for name in names]

    def restore(self, source: np.ndarray, repair: np.ndarray) -> np.ndarray:
        """Returns the repaired text: each sentinel of the source is replaced by the tokens after it
        in the repair, if there are any.
        """
        holes, known = {*self._special(self.holes)}, self.tokenizer.vocab_size
        spans: dict[int, list[int]] = {}
        span: list[int] = []  # tokens before the first sentinel are dropped
        for i in repair.tolist():
            if i in holes:
                span = spans.setdefault(i, [])
            elif i < known:
                span.append(i)
        text = (spans.get(i, [i]) for i in source.tolist() if i < known or i in holes)
        return np.array([*chain.from_iterable(text)], dtype=np.int64)

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from in_open_range(options, "Try 0.15.", rate=(0, 1))
        yield from at_least(options, "token", span=1)
        yield from at_least(options, sentinels=1)


def spans(
    n: int, rate: float, mean: float, most: int, draw: torch.Generator
) -> list[tuple[int, int]]:
    """Returns random spans [start, end) of a text of n tokens: n * rate tokens in spans of `mean`
    tokens on average, at most `most` spans, with at least one token between two spans; the text
    ends with a span. Both numbers are rounded, to at least 1 (`random_spans_noise_mask` of the
    released T5).
    """
    noise = min(max(round(n * rate), 1), max(n - 1, 1))
    count = min(max(round(noise / mean), 1), most, noise, max(n - noise, 1))
    lengths, kept = _random_partition(noise, count, draw), _random_partition(n - noise, count, draw)
    ends = np.cumsum(lengths + kept)
    starts = ends - lengths
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _random_partition(total: int, count: int, draw: torch.Generator) -> np.ndarray:
    """Returns `count` integers of at least 1 whose sum is `total`; all such lists are equally
    likely. For total 0, the array [0].
    """
    cuts = torch.randperm(max(total - 1, 0), generator=draw)[: count - 1].sort().values.numpy() + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def replace_spans(text: np.ndarray, ranges: list[tuple[int, int]], sentinels: list[int]) -> Pair:
    """Returns the source, with a sentinel per span, and the target: each sentinel and its span."""
    pieces = np.split(text, np.ravel(ranges))  # text, span, text, span, ..., text
    used = sentinels[: len(ranges)]
    pairs = zip(([sentinel] for sentinel in used), pieces[1::2], strict=True)
    return join_pieces(pieces[::2], used), np.concatenate([*chain.from_iterable(pairs)])


@OBJECTIVES.register("denoising", also_called=("span_corruption",), similar=("t5", "span_masking"))
@dataclass(kw_only=True, eq=False)
class Denoising(Denoiser):
    """-sum log p of the spans that sentinels replace (Raffel et al., 2020, JMLR 21(140), section
    3.1.4, figure 2).

    `Thank you <X> me to your party <Y> week` has the target `<X> for inviting <Y> last </s>`.
    `rate` of the tokens, rounded, are in spans of `span` tokens on average; there are at most
    `sentinels` spans, which are longer if more would be needed.
    """

    rate: float = 0.15  # share of the tokens that are replaced
    span: float = 3.0  # tokens of a span, on average
    sentinels: int = 100  # number of special tokens for spans; the maximum of spans per example

    def __post_init__(self) -> None:
        self.specials = (START, END, *self.holes)

    def corrupt(self, text, draw):
        return self.corrupt_spans(text, self.rate, self.span, draw)


@OBJECTIVES.register("text_infilling", also_called=("infilling",), similar=("bart",))
@dataclass(kw_only=True, eq=False)
class TextInfilling(Denoiser):
    """-sum log p of a text, given the text with each of some spans replaced by one `<mask>` (Lewis
    et al., 2020, arXiv:1910.13461, section 2.2).

    `rate` of the tokens, rounded up, are in spans whose lengths have a Poisson distribution; a span
    of length 0 inserts a `<mask>` between two tokens, unless the corrupted text would become longer
    than the text.
    """

    specials = (START, END, MASK)
    holes = (MASK,)

    rate: float = 0.3  # share of the tokens that are hidden
    span: float = 3.0  # mean of the Poisson distribution of the tokens of a span
    # whether sentences, which end with . ! ? or a line break, are put into a random order
    permute_sentences: bool = False

    def corrupt(self, text, draw):
        source = self._permuted(text, draw) if self.permute_sentences else text
        lengths = self._lengths(len(text), draw)
        kept = len(text) - int(lengths.sum())
        # below `kept`: a token that is not replaced
        order = torch.randperm(kept + len(lengths), generator=draw).numpy()
        consumed = np.ones(len(order), dtype=np.int64)
        consumed[order >= kept] = lengths
        starts = np.cumsum(consumed) - consumed
        padded = np.append(source, 0)  # a span of length 0 may be at the end
        return np.where(order >= kept, self.tokenizer.special(MASK), padded[starts]), text

    def join_with_blanks(self, pieces, opening=None):
        return join_pieces(pieces, self._special([MASK] * (len(pieces) - 1)))

    def restore(self, source, repair):
        return repair[repair < self.tokenizer.vocab_size]

    def _lengths(self, n: int, draw: torch.Generator) -> np.ndarray:
        """The lengths of the spans, n * rate together; the last is cut; at most one span per
        hidden token.
        """
        hidden = int(np.ceil(n * self.rate))
        means = torch.full((2 * hidden + 8,), float(self.span))
        drawn = torch.poisson(means, generator=draw).long().numpy()
        lengths = np.concatenate([drawn, np.ones(hidden, dtype=np.int64)])  # enough in any case
        last = int(np.searchsorted(np.cumsum(lengths), hidden))
        lengths = lengths[: last + 1].copy()
        lengths[last] -= lengths.sum() - hidden
        empty = np.flatnonzero(lengths == 0)
        return np.delete(lengths, empty[max(0, hidden - (len(lengths) - len(empty))) :])

    @cached_property
    def _ends(self) -> np.ndarray:
        """Whether each id ends a sentence."""
        pieces = [piece.rstrip(b" ") for piece in self.tokenizer.pieces()]
        return np.array([piece.endswith((b".", b"!", b"?", b"\n")) for piece in pieces])

    def _permuted(self, text: np.ndarray, draw: torch.Generator) -> np.ndarray:
        """The text with its sentences in a random order."""
        sentences = np.split(text, np.flatnonzero(self._ends[text[:-1]]) + 1)
        order = torch.randperm(len(sentences), generator=draw).tolist()
        return np.concatenate([sentences[i] for i in order])


class Mode(NamedTuple):
    """One denoiser of the mixture."""

    token: str  # first of the source
    span: float  # tokens, on average
    rate: float  # share of the tokens


# option that holds the weight of a kind -> its denoisers
MODES = {
    "regular": (Mode("[R]", 3, 0.15), Mode("[R]", 8, 0.15)),
    "sequential": (Mode("[S]", float("inf"), 0.25),),  # one span, which is the end of the text
    "extreme": (
        Mode("[X]", 3, 0.5),
        Mode("[X]", 8, 0.5),
        Mode("[X]", 64, 0.15),
        Mode("[X]", 64, 0.5),
    ),
}


@OBJECTIVES.register("mixture_of_denoisers", also_called=("ul2", "mod"))
@dataclass(kw_only=True, eq=False)
class MixtureOfDenoisers(Denoiser):
    """-sum log p of spans, with a denoiser drawn for each example (Tay et al., 2022,
    arXiv:2205.05131, table 1).

    R: 15 % in spans of 3 or 8 tokens. S: the last quarter. X: 50 % in spans of 3 or 8, or 15 % or
    50 % in spans of 64. The source starts with [R], [S] or [X]. All denoisers of a kind are equally
    likely; with the default weights all 7 are, as in the paper.
    """

    reserved = 2
    mode_tokens = ("[R]", "[S]", "[X]")

    regular: float = 2.0  # weight of the R-denoisers
    sequential: float = 1.0  # weight of the S-denoiser
    extreme: float = 4.0  # weight of the X-denoisers
    sentinels: int = 100  # number of special tokens for spans; the maximum of spans per example

    def __post_init__(self) -> None:
        self.specials = (START, END, *self.mode_tokens, *self.holes)

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from at_least(options, **dict.fromkeys(MODES, 0))
        if not any(getattr(options, kind) for kind in MODES):
            yield Fault(
                "regular",
                "some denoiser must have a weight",
                got="0 for all",
                fix="Try 2, sequential=1 and extreme=4.",
            )

    def join_with_blanks(self, pieces, opening=None):
        """`opening` is [R], [S] or [X]; None: [S] if the only hole is the end of the text, else
        [R].
        """
        end = len(pieces) == 2 and not len(pieces[1])
        mode = opening or ("[S]" if end else "[R]")
        return np.concatenate([[self.tokenizer.special(mode)], super().join_with_blanks(pieces)])

    def corrupt(self, text, draw):
        weights = [getattr(self, kind) / len(modes) for kind, modes in MODES.items() for _ in modes]
        drawn = torch.tensor(weights, dtype=torch.float64).multinomial(1, generator=draw)
        mode = [*chain.from_iterable(MODES.values())][int(drawn)]
        source, target = self.corrupt_spans(text, mode.rate, mode.span, draw)
        return np.concatenate([[self.tokenizer.special(mode.token)], source]), target
