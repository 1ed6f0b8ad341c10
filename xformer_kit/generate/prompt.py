"""The prompt of a generation, and a model that continues it with a cache."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.registry import config_error
from xformer_kit.tensors.direct_calls import with_direct_calls
from xformer_kit.tensors.fused_projections import with_fused_projections
from xformer_kit.tensors.ids import checked_ids
from xformer_kit.tensors.tokens import Tokens

MIN_NEW_TOKENS = 32  # from so many new tokens on, preparing the model is worth its time


class Prompt(NamedTuple):
    """The first tokens of the stack that generates, and the source if the model has an encoder."""

    tokens: Tokens  # (b, t), with all padding on the left if tokens are generated
    given: Tensor  # the ids (b, t) as they were given
    source: Tokens | None = None  # (b, s)

    @property
    def rows(self) -> int:
        return len(self.tokens.ids)

    @property
    def length(self) -> int:
        return self.tokens.ids.shape[1]

    def text(self, vocab_size: int, copies: int = 1) -> Tensor:
        """The ids (b * copies, t) for processors; padding has the id `vocab_size`."""
        ids, real = self.tokens.ids.long(), self.tokens.real
        ids = ids if real is None else ids.where(real, vocab_size)
        return ids.repeat_interleave(copies, 0)


class CachedModel:
    """A model with its cache and the encoder's output, which is computed once.

    `first` computes the logits after the prompt; each call appends one token to every row.
    """

    def __init__(self, model: Any, prompt: Prompt, new: int):
        self.model = model
        self.tokens = prompt.tokens
        self.source = None if prompt.source is None else model.encode(prompt.source)[0]
        sources = () if prompt.source is None else (prompt.source.length,)
        self.past = model.cache(prompt.rows, prompt.length + new, *sources)

    def first(self, copies: int = 1) -> Tensor:
        """Logits (b * copies, vocab) after the prompt, which is computed once for all copies."""
        logits = self.head(self.hidden(self.tokens)[:, -1])
        if copies > 1:
            rows = torch.arange(len(logits), device=logits.device).repeat_interleave(copies)
            self.select(rows)
            logits = logits[rows]
        return logits

    def __call__(self, new: Tensor) -> Tensor:
        """Appends one token (b,) per row; returns logits (b, vocab)."""
        return self.head(self.hidden(Tokens(ids=new[:, None]))[:, -1])

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of the input of the head. Raises ConfigError if the largest is NaN or infinite; on
        a GPU, where no value is read, torch raises its own error when it samples.
        """
        return self.checked(self.model.head(hidden))

    def checked(self, logits: Tensor) -> Tensor:
        """Logits, if they are finite; see `head`."""
        if logits.is_cpu and not math.isfinite(logits.amax().item()):
            raise config_error(
                "model",
                "the scores of the next token are not finite, as after a training that diverged",
                fix="Load an earlier checkpoint, or train with a lower optim.lr.",
            )
        return logits

    def hidden(self, tokens: Tokens) -> Tensor:
        """Appends tokens (b, t); returns the input of the head, (b, t, dim)."""
        return self.model.hidden(tokens, self.past, self.source)[0]

    def select(self, rows: Tensor) -> None:
        """Keeps these rows, in this order."""
        self.past.select(rows)
        if self.source is not None:
            self.source = self.source.select(rows)

    def reorder(self, rows: Tensor) -> None:
        """As `select`, but does not change the source: rows[i] must have the same source as i."""
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
    """Returns the prompt for generating `new` tokens. Raises ConfigError if the model cannot
    continue it.

    new: None if nothing is generated; the length of the prompt is not checked then. real: False for
    padding.

    Without ids every row begins with `start`. All tokens of a prompt are a prefix, if a mask
    distinguishes one.
    """
    _check_stacks(model, source)
    _check_used(ids, real, source, source_real, start)
    if source is not None:
        source = _check_vocabulary("source", source, source_real, model.source_vocab_size)
    if ids is None:
        ids = _start_ids(model, source, start)
    ids = _check_vocabulary("prompt", ids, real, model.vocab_size)
    if source is not None and len(source) != len(ids):
        raise config_error(
            "source",
            "must have a row for each prompt",
            got=f"{len(source)} rows and {len(ids)} prompts",
        )
    if new is not None:
        _check_length(model, ids.shape[1], new)
        if real is not None and not real[:, -1].all():
            raise config_error(
                "real", "must be True at the end of every row", fix="Pad prompts on the left."
            )
    tokens = model.prompt(ids, real)
    if new is not None and real is not None:
        tokens = tokens.reordered(real.long().argsort(dim=-1, stable=True))
    return Prompt(tokens, ids, None if source is None else Tokens(ids=source, real=source_real))


def _start_ids(model: Any, source: Tensor | None, start: int | None) -> Tensor:
    """(rows, 1): a row with the token `start` for each source, or one. Raises ConfigError if there
    is no start.
    """
    if start is None:
        raise config_error(
            "prompt",
            "there is none",
            fix="Give a prompt, ids (batch, tokens), or start, the first token.",
        )
    device = next(model.parameters()).device if source is None else source.device
    return torch.full((1 if source is None else len(source), 1), start, device=device)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Sets the model to evaluation mode within this context."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def generating(model: nn.Module, new: int, rows: int = 1) -> Iterator[None]:
    """Evaluation mode; for enough new tokens with fused projections for `rows` texts, and with
    direct calls of modules.
    """
    if new < MIN_NEW_TOKENS:
        with evaluating(model):
            yield
        return
    with evaluating(model), with_fused_projections(model, rows), with_direct_calls(model):
        yield


def _check_stacks(model: Any, source: Tensor | None) -> None:
    """Raises ConfigError for a model that cannot generate, and for a source that is missing or that
    it cannot read.
    """
    reason = model.stack.breaks.get("causality")
    if any(group.mask.sees_future for group in model.stack.attention_groups if not group.cross):
        reason = "a mask sees the future"
    if reason:
        raise config_error(
            "model",
            f"{reason}, so the model does not predict the next token",
            fix="Choose another component.",
        )
    if (source is not None) != model.two_stacks:
        raise config_error(
            "source",
            "must be given to a model with an encoder, and only to such a model",
            fix="Call generate(model, source=..., start=...), or give the source as the prompt.",
        )


def _check_used(ids: Any, real: Any, source: Any, source_real: Any, start: int | None) -> None:
    """Raises ConfigError for arguments that would have no effect."""
    for name, value, used in (
        ("source_real", source_real, source is not None),
        ("real", real, ids is not None),
        ("start", start, ids is None),
    ):
        if value is not None and not used:
            raise config_error(name, "has no effect with these inputs", fix="Leave it out.")


def _check_vocabulary(name: str, ids: Any, real: Any, vocab_size: int) -> Tensor:
    """ids (b, t) as int64. Raises ConfigError for ids outside the vocabulary, and for a `real` of
    another shape.
    """
    field = "real" if name == "prompt" else "source_real"
    ids = checked_ids(name, ids, **{field: real})
    least, largest = (int(n) for n in ids.aminmax())
    if least < 0 or largest >= vocab_size:
        wrong = least if least < 0 else largest
        raise config_error(name, f"must be ids of the vocabulary, 0 to {vocab_size - 1}", got=wrong)
    if real is not None and real.shape != ids.shape:
        raise config_error(
            field, f"must have a value for each token, {tuple(ids.shape)}", got=tuple(real.shape)
        )
    return ids


def _check_length(model: Any, length: int, new: int) -> None:
    """Raises ConfigError if prompt and new tokens exceed the model's longest sequence."""
    limit = getattr(model, "max_seq_len", None)
    if limit is not None and length + new > limit:
        room = limit - length
        raise config_error(
            "max_new_tokens",
            f"the model's positions end at {limit} tokens (model.max_len), the prompt has {length}",
            got=new,
            fix=f"Give at most {room}." if room > 0 else f"Shorten the prompt to below {limit}.",
        )
