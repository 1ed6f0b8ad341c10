"""Denoising: sentinels for spans (T5), text infilling (BART), a mixture of denoisers (UL2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from xformer_kit.objective import OBJECTIVES, Example, between
from xformer_kit.objective.seq2seq import END, START, SourceTarget
from xformer_kit.registry import Fault, at_least, config_error
from xformer_kit.registry.messages import inside

MASK = "<mask>"
Pair = tuple[np.ndarray, np.ndarray]  # the corrupted text, and its repair


class Denoiser(SourceTarget):
    """Base: a pair of a corrupted text and its repair, for an encoder and a decoder.

    taken: places of a window of seq_len that special tokens need; the text has the others.
    """

    needs = (("encoder", "decoder"),)
    speaks = "restores"
    taken = 1
    sentinels: int = 100
    openings: tuple[str, ...] = ()  # special tokens one of which a source begins with

    def corrupt(self, text: np.ndarray, draw: torch.Generator) -> Pair:
        """Ids (n,), n at least 1 -> the corrupted text and its repair, without start and end."""
        raise NotImplementedError

    def example(self, example: Example, draw: torch.Generator) -> Example:
        """A window of seq_len + 1 tokens -> {source, target}, of which the model reads at most
        seq_len each.
        """
        window = example["tokens"]
        room = len(window) - 1 - self.taken
        if room < 1:
            raise config_error(
                "data.seq_len",
                f"must be at least {self.taken + 1} tokens, {self.taken} of them special",
                f"{len(window) - 1}",
            )
        text = window[example["tokens.real"]] if "tokens.real" in example else window
        return self.pair(*self.corrupt(text[:room], draw))

    @property
    def holes(self) -> tuple[str, ...]:
        """The special tokens that stand for spans, in order: the first span has the first."""
        return tuple(f"<extra_id_{i}>" for i in range(self.sentinels))

    def spans_hidden(
        self, text: np.ndarray, rate: float, span: float, draw: torch.Generator
    ) -> Pair:
        """Random spans, each replaced by a sentinel."""
        where = spans(len(text), rate, span, self.sentinels, draw)
        return behind_sentinels(text, where, self._special(self.holes))

    def blanked(self, pieces: Sequence[np.ndarray], opening: str | None = None) -> np.ndarray:
        """Ids (t,) of a text in pieces, with a span between each two that is not known; at most as
        many as `holes`.
        """
        return between(pieces, self._special(self.holes[: len(pieces) - 1]))

    def _special(self, names: Sequence[str]) -> list[int]:
        return [self.tokenizer.special(name) for name in names]

    def restored(self, source: np.ndarray, repair: np.ndarray) -> np.ndarray:
        """The repaired text: each sentinel of the source is replaced by the tokens after it in the
        repair, if there are any.
        """
        holes, known = {*self._special(self.holes)}, self.tokenizer.vocab_size
        spans: dict[int, list[int]] = {}
        span: list[int] = []  # what comes before the first sentinel belongs nowhere
        for i in repair.tolist():
            if i in holes:
                span = spans.setdefault(i, [])
            elif i < known:
                span.append(i)
        text = [spans.get(i, [i]) for i in source.tolist() if i < known or i in holes]
        return np.array([i for part in text for i in part], dtype=np.int64)

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from inside(options, "Try 0.15.", rate=(0, 1))
        yield from at_least(options, "token", span=1)
        yield from at_least(options, sentinels=1)


def spans(
    n: int, rate: float, mean: float, most: int, draw: torch.Generator
) -> list[tuple[int, int]]:
    """Random spans [start, end) of a text of n tokens: n * rate tokens in spans of `mean` tokens on
    average, at most `most` of them, with at least one token between two; the text ends with one.
    Both are rounded, to 1 at least (`random_spans_noise_mask` of the released T5).
    """
    noise = min(max(round(n * rate), 1), max(n - 1, 1))
    count = min(max(round(noise / mean), 1), most, noise, max(n - noise, 1))
    ends = np.cumsum(_parts(noise, count, draw) + (kept := _parts(n - noise, count, draw)))
    starts = np.concatenate([[0], ends[:-1]]) + kept
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _parts(total: int, count: int, draw: torch.Generator) -> np.ndarray:
    """A random way to write `total` as a sum of `count` numbers, at least 1 each; each way as
    likely. 0 is (0,).
    """
    cuts = torch.randperm(max(total - 1, 0), generator=draw)[: count - 1].sort().values.numpy() + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def behind_sentinels(text: np.ndarray, where: list[tuple[int, int]], sentinels: list[int]) -> Pair:
    """Each span is one sentinel in the source; the target has each sentinel and its tokens."""
    source: list[Any] = []
    target: list[Any] = []
    at = 0
    for (start, end), sentinel in zip(where, sentinels, strict=False):
        source += [text[at:start], [sentinel]]
        target += [[sentinel], text[start:end]]
        at = end
    return np.concatenate([*source, text[at:]]), np.concatenate(target)


@OBJECTIVES.register("denoising", also_called=("t5", "span_corruption", "span_masking"))
@dataclass(kw_only=True, eq=False)
class Denoising(Denoiser):
    """-sum log p of the spans that sentinels stand for (Raffel et al., 2020, JMLR 21(140), section
    3.1.4, figure 2).

    `Thank you <X> me to your party <Y> week` has the target `<X> for inviting <Y> last </s>`.
    `rate` of the tokens, rounded, lie in spans of `span` tokens on average; there are at most
    `sentinels` spans, longer ones where more would be needed.
    """

    rate: float = 0.15  # share of the tokens that are to be restored
    span: float = 3.0  # tokens of a span, on average
    sentinels: int = 100  # special tokens that stand for spans; the most spans of an example

    def __post_init__(self) -> None:
        self.specials = (START, END, *self.holes)

    def corrupt(self, text, draw):
        return self.spans_hidden(text, self.rate, self.span, draw)


@OBJECTIVES.register("text_infilling", also_called=("bart", "infilling"))
@dataclass(kw_only=True, eq=False)
class TextInfilling(Denoiser):
    """-sum log p of a whole text of which spans are one `<mask>` each (Lewis et al., 2020,
    arXiv:1910.13461, section 2.2).

    `rate` of the tokens, rounded up, lie in spans whose lengths are drawn from a Poisson
    distribution; one of length 0 puts a `<mask>` between two tokens, as long as the corrupted text
    gets no longer than the text.
    """

    specials = (START, END, MASK)
    holes = (MASK,)

    rate: float = 0.3  # share of the tokens that are hidden
    span: float = 3.0  # mean of the Poisson distribution of the tokens of a span
    # whether sentences, which end with . ! ? or a line, come in a random order
    permute_sentences: bool = False

    def corrupt(self, text, draw):
        source = self._permuted(text, draw) if self.permute_sentences else text
        lengths = self._lengths(len(text), draw)
        kept = len(text) - int(lengths.sum())
        # below `kept`: a token that stays
        order = torch.randperm(kept + len(lengths), generator=draw).numpy()
        consumed = np.ones(len(order), dtype=np.int64)
        consumed[order >= kept] = lengths
        starts = np.cumsum(consumed) - consumed
        padded = np.append(source, 0)  # a mask of length 0 may stand at the end
        return np.where(order >= kept, self.tokenizer.special(MASK), padded[starts]), text

    def blanked(self, pieces, opening=None):
        return between(pieces, self._special([MASK] * (len(pieces) - 1)))

    def restored(self, source, repair):
        return repair[repair < self.tokenizer.vocab_size]

    def _lengths(self, n: int, draw: torch.Generator) -> np.ndarray:
        """Tokens of each span: n * rate in all, the last one cut; no more spans than tokens."""
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
        sentences = np.split(text, np.flatnonzero(self._ends[text[:-1]]) + 1)
        return np.concatenate(
            [sentences[i] for i in torch.randperm(len(sentences), generator=draw).tolist()]
        )


class Mode(NamedTuple):
    """One denoiser of the mixture."""

    token: str  # first of the source
    span: float  # tokens, on average
    rate: float  # share of the tokens


# option, the weight of a kind -> its denoisers
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
    """-sum log p of spans, by a denoiser that is drawn for each example (Tay et al., 2022,
    arXiv:2205.05131, table 1).

    R: 15 % in spans of 3 or 8 tokens. S: the last quarter. X: 50 % in spans of 3 or 8, or 15 % or
    50 % in spans of 64. The source begins with [R], [S] or [X]. The denoisers of a kind are as
    likely; the paper's 7 all are, by these weights.
    """

    taken = 2
    openings = ("[R]", "[S]", "[X]")

    regular: float = 2.0  # weight of the R-denoisers
    sequential: float = 1.0  # weight of the S-denoiser
    extreme: float = 4.0  # weight of the X-denoisers
    sentinels: int = 100  # special tokens that stand for spans; the most spans of an example

    def __post_init__(self) -> None:
        self.specials = (START, END, *self.openings, *self.holes)

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

    def blanked(self, pieces, opening=None):
        """`opening` is [R], [S] or [X]; null: [S] where the one hole is the end of the text, else
        [R].
        """
        end = len(pieces) == 2 and not len(pieces[1])
        mode = opening or ("[S]" if end else "[R]")
        return np.concatenate([[self.tokenizer.special(mode)], super().blanked(pieces)])

    def corrupt(self, text, draw):
        weights = [getattr(self, kind) / len(modes) for kind, modes in MODES.items() for _ in modes]
        drawn = torch.tensor(weights, dtype=torch.float64).multinomial(1, generator=draw)
        mode = [*chain.from_iterable(MODES.values())][int(drawn)]
        source, target = self.spans_hidden(text, mode.rate, mode.span, draw)
        return np.concatenate([[self.tokenizer.special(mode.token)], source]), target
