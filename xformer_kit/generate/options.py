"""The options of generation, for all decoding methods."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_type_hints

import torch
from torch import Tensor

from xformer_kit.registry import (
    ConfigError,
    Context,
    Fault,
    Faults,
    Options,
    above,
    at_least,
    at_most,
    config_error,
    mismatch,
    other_argument,
    suggestion,
)
from xformer_kit.registry.messages import in_open_range

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
    # whether a step is one compiled graph (`CompiledModel`), for texts that are drawn or greedy
    compiled: bool = False

    @classmethod
    def of(cls, vocab_size: int | None = None, drafted: bool = False, **options: Any) -> "Decoding":
        """Returns the checked options. Raises ConfigError with all faults."""
        types = get_type_hints(cls) | CHECKED
        faults = [
            other_argument("generate", key, value)
            or Fault(key, "decoding has no such option", fix=suggestion(key, types, "It has"))
            for key, value in options.items()
            if key not in types
        ]
        plain = {key: _plain(value) for key, value in options.items() if key in types}
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

    def faults(self, drafted: bool = False) -> Faults:
        """Yields faults: values out of range, and options that exclude each other."""
        yield from range_faults(vars(self))
        for seed in self.seed if isinstance(self.seed, Sequence) else [self.seed]:
            if seed is not None and not 0 <= seed < 2**63:
                yield Fault("seed", "must be at least 0 and below 2^63", got=seed)
        yield from self._end()
        yield from self._unused(drafted)
        most = self.beam or 1
        if self.num_return > most and (self.greedy or self.beam or self.penalty_alpha is not None):
            yield Fault(
                "num_return",
                "must be at most beam, which is 1 by default, for texts that are not drawn",
                got=f"{self.num_return} and {most}",
                fix=f"Try beam={self.num_return}, or temperature=1.",
            )
        if self.penalty_alpha is not None and self.top_k is None:
            yield Fault(
                "penalty_alpha",
                "chooses among the top_k likeliest tokens",
                got="no top_k",
                fix="Try top_k=4.",
            )

    def _end(self) -> Faults:
        """Yields faults of the options about the end of a text, and of `allowed`."""
        if not 0 <= self.min_new_tokens <= max(1, self.max_new_tokens):
            yield Fault(
                "min_new_tokens",
                "must be at least 0 and at most max_new_tokens",
                f"{self.min_new_tokens} and {self.max_new_tokens}",
            )
        if self.min_new_tokens and self.end is None:
            yield Fault(
                "min_new_tokens",
                "puts off `end`, and there is none",
                fix="Give end, the id at which a text stops.",
            )
        if not all(self.stops):
            yield Fault("stop", "must be texts of at least one character", got="an empty one")
        if isinstance(self.allowed, Sequence) and not set(self.allowed) - {self.end}:
            yield Fault("allowed", "must list at least one id besides end", got=list(self.allowed))

    def _unused(self, drafted: bool) -> Faults:
        """Yields a fault for each option that the decoding method does not use."""
        if self.penalty_alpha is not None:
            method = f"with penalty_alpha={self.penalty_alpha}"
            drawing = [name for name in SAMPLING_OPTIONS if name != "top_k"]
            names = ["beam", *BEAM_OPTIONS, *drawing]
        elif self.beam is not None:
            method = f"with beam={self.beam}"
            names = [*(SAMPLING_OPTIONS[1:] if self.greedy else SAMPLING_OPTIONS), "stop"]
        elif self.greedy:
            method = "with temperature=0"
            names = [*BEAM_OPTIONS, "typical_p"]
        else:
            method = "without beam"
            names = [*BEAM_OPTIONS]
        for name in names if drafted else [*names, "ahead"]:
            if (value := getattr(self, name)) is not None:
                yield Fault(
                    name,
                    f"has no effect {'without draft' if name == 'ahead' else method}",
                    got=value,
                    fix="Leave it out.",
                )
        if self.compiled and (drafted or (self.beam, self.penalty_alpha) != (None, None)):
            yield Fault(
                "compiled",
                f"has no effect {'with draft' if drafted else method}",
                fix="Leave it out.",
            )
        if drafted and (self.beam, self.penalty_alpha) != (None, None):
            yield Fault("draft", f"has no effect {method}", fix="Leave it out.")

    def vocabulary_faults(self, vocab_size: int) -> Faults:
        """Yields a fault if `end`, `start` or an id in `allowed` is not in the vocabulary."""
        vocabulary, ids = range(vocab_size), f"of the vocabulary, 0 to {vocab_size - 1}"
        for name in ("end", "start"):
            if (value := getattr(self, name)) is not None and value not in vocabulary:
                yield Fault(name, f"must be an id {ids}", got=value)
        listed = self.allowed if isinstance(self.allowed, Sequence) else ()
        if outside := [value for value in listed if value not in vocabulary]:
            yield Fault("allowed", f"must list ids {ids}", got=outside[0])


def range_faults(values: Mapping[str, Any]) -> Faults:
    """Yields faults: numbers out of range. values: option of `Decoding` -> its value."""
    options = Options(**values)
    counts = dict.fromkeys(("max_new_tokens", "num_return", "no_repeat_ngram", "beam", "ahead"), 1)
    lowest: dict[str, Any] = {**counts, "temperature": 0, "min_p": 0, "penalty_alpha": 0}
    yield from at_least(options, **lowest, repetition_penalty=0.001, length_penalty=-5)
    yield from above(options, "Leave it out to draw from all tokens.", top_k=0)
    yield from at_most(options, max_new_tokens=MOST, num_return=MOST, beam=MAX_BEAMS)
    yield from at_most(options, min_p=1, penalty_alpha=1, repetition_penalty=1000, length_penalty=5)
    yield from in_open_range(options, "", closed=True, top_p=(0, 1))
    yield from in_open_range(options, "", typical_p=(0, 1))


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
