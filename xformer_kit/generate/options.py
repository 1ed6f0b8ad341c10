"""The options of generation, for all decoding methods."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_type_hints

import torch
from torch import Tensor

from xformer_kit.registry import (
    ConfigError,
    Context,
    Fault,
    Faults,
    config_error,
    mismatch,
    unknown_option,
)

# (prompt's row, its ids so far (t,)) -> ids that may follow
Allowed = Callable[[int, Tensor], Sequence[int]]
MAX_BEAMS, MOST = 1000, 1_000_000
# options of sampling, without effect in beam search
SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "typical_p")
BEAM_OPTIONS = ("length_penalty", "early_stopping")
# types of options as `registry.mismatch` reads them, if they differ from the annotation
CHECKED = {
    "stop": str | list[str] | None,
    "allowed": list[int] | None,
    "seed": int | list[int] | None,
}


class OptionRule(NamedTuple):
    """A test of an option's value, with the texts of its fault."""

    contains: Callable[[Any], bool]  # whether a value is allowed
    rule: str  # the allowed values in words: at least 1
    fix: str = ""


POSITIVE = OptionRule(lambda value: value >= 1, "at least 1")
RANGES = {
    **dict.fromkeys(
        ("max_new_tokens", "num_return"),
        OptionRule(lambda value: 1 <= value <= MOST, f"at least 1 and at most {MOST:,}"),
    ),
    "temperature": OptionRule(lambda t: t >= 0, "at least 0", "0 takes the likeliest token."),
    "top_k": POSITIVE._replace(fix="Leave it out to draw from all tokens."),
    **dict.fromkeys(("no_repeat_ngram", "beam", "ahead"), POSITIVE),
    "top_p": OptionRule(lambda p: 0 < p <= 1, "above 0 and at most 1"),
    "min_p": OptionRule(lambda p: 0 <= p <= 1, "at least 0 and at most 1"),
    "typical_p": OptionRule(lambda p: 0 < p < 1, "above 0 and below 1"),
    "penalty_alpha": OptionRule(
        lambda alpha: 0 <= alpha <= 1, "at least 0 and at most 1", "Try 0.6 with top_k=4."
    ),
    "repetition_penalty": OptionRule(
        lambda penalty: 1e-3 <= penalty <= 1e3,
        "at least 0.001 and at most 1,000",
        "Above 1 repeats less, 1 changes nothing.",
    ),
    "length_penalty": OptionRule(
        lambda penalty: -5 <= penalty <= 5,
        "at least -5 and at most 5",
        "Above 0 prefers long texts, below 0 short ones.",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
    """The options of decoding; None has no effect."""

    max_new_tokens: int = 64  # tokens
    temperature: float | None = None  # divides the logits, null is 1; 0 chooses the likeliest token
    top_k: int | None = None  # draw from the k likeliest tokens
    # draw from the smallest set of likeliest tokens with probability p together
    top_p: float | None = None
    # draw from tokens with at least this share of the likeliest one's probability
    min_p: float | None = None
    # draw from the tokens whose surprisal is nearest to the entropy, with probability p together
    typical_p: float | None = None
    # contrastive search: weight of the similarity to the text so far, with top_k
    penalty_alpha: float | None = None
    # divides positive scores of ids in the text so far, multiplies negative ones
    repetition_penalty: float | None = None
    no_repeat_ngram: int | None = None  # tokens; no sequence of this length occurs twice
    min_new_tokens: int = 0  # new tokens before `end` may occur
    end: int | None = None  # id at which a row stops; finished rows are filled with it
    start: int | None = None  # the decoder's first token if there is no prompt
    stop: str | Sequence[str] | None = None  # texts after which a row stops
    # allowed ids in addition to `end`; or a function (row, ids so far) -> all allowed ids
    allowed: Sequence[int] | Allowed | None = None
    # seed of the random numbers: one for all rows, or one for each returned row
    seed: int | Sequence[int] | None = None
    beam: int | None = None  # hypotheses kept for each prompt; null draws, 1 is greedy
    length_penalty: float | None = None  # a finished score is divided by length ** this; null is 1
    # when the search for a prompt ends, see `beam_search`; null is false
    early_stopping: bool | Literal["never"] | None = None
    num_return: int = 1  # texts for each prompt
    ahead: int | None = None  # tokens that a draft model proposes at once; null is 4

    @classmethod
    def of(cls, vocab_size: int | None = None, drafted: bool = False, **options: Any) -> "Decoding":
        """Returns the checked options. Raises ConfigError with all faults."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        faults = [
            replace(
                unknown_option("generate", "settings", "", key, known),
                rule="decoding has no such key",
            )
            for key in options
            if key not in known
        ]
        types = get_type_hints(cls) | CHECKED
        plain = {key: _plain(value) for key, value in options.items() if key in known}
        for key, value in plain.items():
            if key != "allowed" or not callable(value):
                faults += mismatch(types[key], value, key, Context())
        if not faults:
            decoding = cls(**plain)
            faults = list(decoding.faults(drafted))
            if vocab_size is not None:
                faults += decoding.vocabulary_faults(vocab_size)
        if faults:
            raise ConfigError(faults)
        return decoding

    @property
    def greedy(self) -> bool:
        """Whether the temperature is 0: the likeliest token is taken instead of a random one."""
        return self.temperature == 0

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop texts."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def _set_options(self, *names: str) -> Iterator[tuple[str, Any]]:
        """Yields (name, value) of the named options that are not None."""
        values = ((name, getattr(self, name)) for name in names)
        return ((name, value) for name, value in values if value is not None)

    def _excluded(self, *names: str, rule: str) -> Faults:
        """Yields a fault for each of the named options that is not None."""
        for name, value in self._set_options(*names):
            yield Fault(name, rule, got=value, fix="Leave one of them out.")

    def faults(self, drafted: bool = False) -> Faults:
        """Yields faults: values out of range, and options that exclude each other."""
        yield from self._ranges()
        yield from self._end()
        yield from self._beams() if self.penalty_alpha is None else self._contrast()
        if drafted and (self.beam, self.penalty_alpha) != (None, None):
            rule = "speeds up draws and greedy decoding; a search has no use for it"
            yield Fault("draft", rule, fix="Leave draft, or beam and penalty_alpha, out.")
        if self.ahead is not None and not drafted:
            yield Fault(
                "ahead",
                "is for a draft model, and there is none",
                got=self.ahead,
                fix="Give draft, or leave it out.",
            )
        if self.greedy and self.beam is None:
            if self.num_return > 1:
                yield Fault(
                    "num_return",
                    "temperature 0 gives one text for each prompt",
                    got=self.num_return,
                    fix=f"Try temperature=1, or beam={self.num_return}.",
                )
            if self.typical_p is not None:
                yield Fault(
                    "typical_p",
                    "may leave out the likeliest token, which temperature=0 takes",
                    fix="Leave one of them out.",
                )

    def _ranges(self) -> Faults:
        """Yields faults: values out of range."""
        for name, value in self._set_options(*RANGES):
            contains, rule, fix = RANGES[name]
            if not contains(value):
                yield Fault(name, f"must be {rule}", got=value, fix=fix)
        if (self.beam or 0) > MAX_BEAMS:
            yield Fault(
                "beam",
                f"must be at most {MAX_BEAMS:,}, each of which is a text to read",
                got=f"{self.beam:,}",
                fix="Try 4 to 10.",
            )
        for seed in self.seed if isinstance(self.seed, Sequence) else [self.seed]:
            if seed is not None and not 0 <= seed < 2**63:
                yield Fault("seed", "must be at least 0 and below 2^63", got=seed)

    def _end(self) -> Faults:
        """Yields faults of the options about the end of a text, and of `allowed`."""
        if not 0 <= self.min_new_tokens <= max(1, self.max_new_tokens):
            yield Fault(
                "min_new_tokens",
                "must be at least 0 and at most max_new_tokens",
                got=f"{self.min_new_tokens} and {self.max_new_tokens}",
            )
        if self.min_new_tokens and self.end is None:
            yield Fault(
                "min_new_tokens",
                "puts off `end`, and there is none",
                fix="Give end, the id at which a text stops.",
            )
        if any(not text for text in self.stops):
            yield Fault("stop", "must be texts of at least one character", got="an empty one")
        if isinstance(self.allowed, Sequence) and not set(self.allowed) - {self.end}:
            yield Fault("allowed", "must list at least one id besides end", got=list(self.allowed))

    def _beams(self) -> Faults:
        """Yields options that exclude beam search, or that need it."""
        if self.beam is None:
            for name, value in self._set_options(*BEAM_OPTIONS):
                yield Fault(
                    name,
                    "applies only to beam search",
                    got=f"{value} without a beam",
                    fix="Set beam=4, or leave it out.",
                )
            return
        names = SAMPLING_OPTIONS[1:] if self.greedy else SAMPLING_OPTIONS
        yield from self._excluded(*names, rule=f"shapes a draw, and beam={self.beam} draws nothing")
        if self.num_return > self.beam >= 1:
            yield Fault(
                "num_return",
                "must be at most beam",
                got=f"{self.num_return} and {self.beam}",
                fix=f"Try beam={self.num_return}.",
            )
        if self.stops:
            yield Fault(
                "stop",
                "beam search ends a text only at `end`",
                fix="Give end, or leave beam or stop out.",
            )

    def _contrast(self) -> Faults:
        """Yields options that exclude contrastive search."""
        setting = f"penalty_alpha={self.penalty_alpha}"
        if self.top_k is None:
            yield Fault(
                "penalty_alpha",
                "chooses among the top_k likeliest tokens",
                got=f"{self.penalty_alpha} and no top_k",
                fix="Try top_k=4.",
            )
        yield from self._excluded(
            "beam",
            *BEAM_OPTIONS,
            rule=f"is for a search, and {setting} takes one token after another",
        )
        yield from self._excluded(
            *(name for name in SAMPLING_OPTIONS if name != "top_k"),
            rule=f"shapes a draw, and {setting} draws nothing",
        )
        if self.num_return > 1:
            yield Fault(
                "num_return",
                f"{setting} gives one text for each prompt",
                got=self.num_return,
                fix="Leave one of them out.",
            )

    def vocabulary_faults(self, vocab_size: int) -> Faults:
        """Yields a fault if `end`, `start` or an id in `allowed` is not in the vocabulary."""
        vocabulary, ids = range(vocab_size), f"of the vocabulary, 0 to {vocab_size - 1}"
        for name, value in self._set_options("end", "start"):
            if value not in vocabulary:
                yield Fault(name, f"must be an id {ids}", got=value)
        listed = self.allowed if isinstance(self.allowed, Sequence) else ()
        if outside := [value for value in listed if value not in vocabulary]:
            yield Fault("allowed", f"must list ids {ids}", got=outside[0])


def _plain(value: Any) -> Any:
    """Returns tensors, sets, ranges and tuples as lists."""
    if isinstance(value, Tensor):
        return value.tolist()
    return list(value) if isinstance(value, set | frozenset | range | tuple) else value


def generators(
    decoding: Decoding, rows: int, device: torch.device
) -> list[torch.Generator] | torch.Generator | None:
    """The random generators: one for all rows, one for each row, or None for torch's default."""
    if isinstance(decoding.seed, Sequence):
        if len(decoding.seed) != rows:
            raise config_error(
                "seed",
                f"must be one number, or one for each of {rows} rows",
                got=len(decoding.seed),
            )
        return [torch.Generator(device).manual_seed(seed) for seed in decoding.seed]
    return None if decoding.seed is None else torch.Generator(device).manual_seed(decoding.seed)
