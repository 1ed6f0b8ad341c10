"""Log-probabilities of given texts."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.generate.prompt import evaluating, prompt_of
from xformer_kit.registry import config_error
from xformer_kit.tensors.tokens import Tokens, order_without_gaps

CHUNK = 2**24  # logits that exist at once


@torch.inference_mode()
def score(
    model: Any,
    ids: Tensor,
    *,
    source: Tensor | None = None,
    source_real: Tensor | None = None,
    real: Tensor | None = None,
    prefix: Tensor | None = None,
    start: int | None = None,
) -> Tensor:
    """Returns log p of each token of texts (b, t) in nats, given the earlier tokens and the source:
    (b, t - 1), or (b, t) with `start`, which is prepended to every text. The sum over a row is the
    text's log-probability.

    real: (b, t), False on padding.
    prefix: (b, t), True on tokens that are given and not predicted (the prefix of mask=prefix).

    Padding, prefix and the first real token have log-probability 0. Raises ConfigError for inputs
    that the model cannot read.
    """
    if start is not None and isinstance(ids, Tensor) and ids.ndim == 2:
        ids, real, prefix = _prepend_start(ids, real, prefix, start)
    prompt = prompt_of(model, ids, None, source=source, source_real=source_real, real=real)
    if ids.shape[1] < 2:
        raise config_error(
            "ids",
            "must hold at least two tokens, of which the second is scored",
            got="1",
            fix="Or give start.",
        )
    tokens = Tokens(ids=prompt.given, real=real, prefix=prefix)
    if (order := order_without_gaps(real)) is not None:
        scores = _scores(model, tokens.reordered(order), prompt.source)
        return F.pad(scores, (1, 0)).gather(1, order.argsort(-1))[:, 1:]
    return _scores(model, tokens, prompt.source)


def _scores(model: Any, tokens: Tokens, source: Tokens | None) -> Tensor:
    """The log-probabilities of texts without padding between their tokens."""
    ids: Any = tokens.ids
    with evaluating(model):
        encoded = None if source is None else model.encode(source)[0]
        hidden, _ = model.hidden(tokens.map(lambda field: field[:, :-1]), source=encoded)
        scores = _log_probability(model.head, hidden, ids[:, 1:], model.vocab_size)
    predicted = torch.ones_like(ids[:, 1:], dtype=torch.bool)
    if tokens.real is not None:
        predicted = tokens.real[:, 1:] & tokens.real[:, :-1]
    if tokens.prefix is not None:
        predicted = predicted & ~tokens.prefix[:, 1:]
    return scores.masked_fill(~predicted, 0)


def _prepend_start(
    ids: Tensor, real: Tensor | None, prefix: Tensor | None, start: int
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Returns the fields with `start` prepended."""
    if real is not None and not real[:, 0].all():
        raise config_error(
            "real",
            "must be True at the beginning of every row with start",
            fix="Pad texts on the right.",
        )
    pad = lambda mask: None if mask is None else F.pad(mask, (1, 0), value=True)
    return F.pad(ids, (1, 0), value=start), pad(real), pad(prefix)


def _log_probability(head: Any, hidden: Tensor, ids: Tensor, vocab_size: int) -> Tensor:
    """log p (b, t) of ids (b, t) from hidden states (b, t, dim), in chunks, so that all logits
    never exist at once.
    """
    step = max(1, CHUNK // (len(ids) * vocab_size))
    parts = zip(hidden.split(step, 1), ids.split(step, 1), strict=True)
    return torch.cat(
        [head(h).float().log_softmax(-1).gather(-1, i[..., None])[..., 0] for h, i in parts], 1
    )
