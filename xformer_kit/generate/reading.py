"""The prompt of a generation, and a model that reads it with a cache."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.model.fused_projections import packed
from xformer_kit.model.tokens import Tokens, checked_ids
from xformer_kit.registry import config_error

MANY = 32  # from so many new tokens on, copies of the weights pay (see `fused_projections`)


class Prompt(NamedTuple):
    """The first tokens of the stack that generates, and the source if the model has an encoder."""

    tokens: Tokens  # (b, t)
    source: Tokens | None = None  # (b, s)

    @property
    def rows(self) -> int:
        return len(self.tokens.ids)

    @property
    def length(self) -> int:
        return self.tokens.ids.shape[1]

    def text(self, vocab_size: int, copies: int = 1) -> Tensor:
        """The ids (b * copies, t) for processors: padding is `vocab_size`."""
        ids, real = self.tokens.ids.long(), self.tokens.real
        ids = ids if real is None else ids.where(real, vocab_size)
        return ids if copies == 1 else ids.repeat_interleave(copies, 0)


class Reading:
    """A model with its cache, and the encoder's output, which is computed once.

    `first` reads the prompt and returns the logits of the next token, a call reads one more token
    of every row.
    """

    def __init__(self, model: Any, prompt: Prompt, new: int):
        self.model = model
        self.tokens = prompt.tokens
        self.source = None if prompt.source is None else model.encode(prompt.source)[0]
        sources = () if prompt.source is None else (prompt.source.length,)
        self.past = model.cache(prompt.rows, prompt.length + new, *sources)

    def first(self, copies: int = 1) -> Tensor:
        """Logits (b * copies, vocab) after the prompt, which is read once."""
        logits = self.model.head(self.hidden(self.tokens)[:, -1])
        if copies > 1:
            rows = torch.arange(len(logits), device=logits.device).repeat_interleave(copies)
            self.select(rows)
            logits = logits[rows]
        return logits

    def __call__(self, new: Tensor) -> Tensor:
        """One more token (b,) of each row -> logits (b, vocab)."""
        return self.model.head(self.hidden(Tokens(ids=new[:, None]))[:, -1])

    def hidden(self, tokens: Tokens) -> Tensor:
        return self.model.hidden(tokens, self.past, self.source)[0]

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        self.past.select(rows)
        if self.source is not None:
            self.source = self.source.select(rows)

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows, each in the place of one with the same source."""
        self.past.select(rows, sources=False)


def prompt_of(
    model: Any,
    ids: Tensor | None,
    new: int | None,
    *,
    source: Tensor | None = None,
    source_real: Tensor | None = None,
    real: Tensor | None = None,
    start: int | None = None,
) -> Prompt:
    """The prompt for `new` more tokens, or for none (null). Raises ConfigError if the model
    cannot continue it.

    Without ids every row begins with `start`. All tokens of a prompt are its prefix, for a mask
    that has one.
    """
    _stacks(model, source)
    if source is not None:
        source = _fits("source", source, source_real, model.source_vocab_size)
    if ids is None:
        ids = _started(model, source, start)
    ids = _fits("prompt", ids, real, model.vocab_size)
    if source is not None and len(source) != len(ids):
        raise config_error(
            "source",
            "must have a row for each prompt",
            got=f"{len(source)} rows and {len(ids)} prompts",
        )
    if new is not None:
        _room(model, ids.shape[1], new)
        if real is not None and not real[:, -1].all():
            raise config_error(
                "real", "must be True at the end of every row", fix="Pad prompts on the left."
            )
    prefix = (
        torch.ones_like(ids, dtype=torch.bool)
        if any(look.mask.sees_prefix for look in model.stack.groups)
        else None
    )
    tokens = Tokens(ids=ids, real=real, prefix=prefix)
    return Prompt(tokens, None if source is None else Tokens(ids=source, real=source_real))


def _started(model: Any, source: Tensor | None, start: int | None) -> Tensor:
    """(rows, 1): a row with the token `start` for each source, or one. Raises ConfigError if there
    is no start.
    """
    if start is None:
        what = (
            "start, the decoder's first token"
            if source is not None
            else "a prompt, ids (batch, tokens), or start"
        )
        raise config_error("prompt", "there is none", fix=f"Give {what}.")
    device = next(model.parameters()).device if source is None else source.device
    return torch.full((1 if source is None else len(source), 1), start, device=device)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, and back."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def generating(model: nn.Module, new: int, rows: int = 1) -> Iterator[None]:
    """The model in evaluation mode, with weights laid out for `rows` texts of `new` tokens."""
    with evaluating(model), packed(model, rows) if new >= MANY else nullcontext():
        yield


def _stacks(model: Any, source: Tensor | None) -> None:
    """Raises ConfigError for a model that cannot generate, and for a source that it cannot read or
    that is missing.
    """
    if any(look.mask.sees_future for look in model.stack.groups if not look.cross):
        raise config_error(
            "model",
            "a mask sees the future, so the model does not say what comes next",
            fix="Generate with mask=causal, or with model=decoder or model=encoder_decoder.",
        )
    if source is None and model.two_stacks:
        raise config_error(
            "source",
            "must be given to a model with an encoder",
            fix="Call generate(model, source=..., start=...).",
        )
    if source is not None and not model.two_stacks:
        raise config_error(
            "source",
            "needs an encoder, and the model has none",
            fix="Give the source as the prompt, ids.",
        )


def _fits(name: str, ids: Any, real: Any, vocab_size: int) -> Tensor:
    """ids (b, t) as int64. Raises ConfigError for ids outside the vocabulary, and for a `real` of
    another shape.
    """
    ids = checked_ids(name, ids)
    least, largest = (int(n) for n in ids.aminmax())
    if least < 0 or largest >= vocab_size:
        wrong = least if least < 0 else largest
        raise config_error(name, f"must be ids of the vocabulary, 0 to {vocab_size - 1}", got=wrong)
    if real is not None:
        given = "real" if name == "prompt" else "source_real"
        if real.shape != ids.shape or real.dtype != torch.bool:
            raise config_error(
                given,
                f"must be true or false for each token of the {name}, {tuple(ids.shape)} of"
                " torch.bool",
                got=f"{tuple(real.shape)} of {real.dtype}",
            )
    return ids


def _room(model: Any, length: int, new: int) -> None:
    known = getattr(model, "longest", None)
    if known is not None and length + new > known:
        room = known - length
        raise config_error(
            "max_new_tokens",
            f"the model's positions end at {known} tokens (model.max_len), the prompt has {length}",
            got=new,
            fix=(
                f"Ask for at most {room}." if room > 0 else f"Shorten the prompt to below {known}."
            ),
        )
