"""Log-probabilities of given texts."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.generate.reading import evaluating, prompt_of
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import config_error

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
    """log p of each token of texts (b, t) in nats, given those before it and the source: (b, t -
    1), or (b, t) behind `start`, which then stands in front of every text. The sum over a row is
    the text's log-probability.

    real (b, t) is False on padding, on either side; prefix (b, t) is True on what is given, not
    predicted, and what mask=prefix sees whole. Both have log-probability 0, as has the first real
    token, which stands behind nothing. Raises ConfigError for what the model cannot read.
    """
    if start is not None and isinstance(ids, Tensor) and ids.ndim == 2:
        ids, real, prefix = _begun(ids, real, prefix, start)
    prompt = prompt_of(model, ids, None, source=source, source_real=source_real, real=real)
    if ids.shape[1] < 2:
        raise config_error(
            "ids",
            "must hold at least two tokens, of which the second is scored",
            got="1",
            fix="Or give start.",
        )
    ids = prompt.tokens.ids.long()
    tokens = Tokens(ids=ids, real=real, prefix=prefix).map(lambda field: field[:, :-1])
    with evaluating(model):
        encoded = None if prompt.source is None else model.encode(prompt.source)[0]
        hidden, _ = model.hidden(tokens, source=encoded)
        found = _log_probability(model.head, hidden, ids[:, 1:], model.vocab_size)
    asked = torch.ones_like(ids[:, 1:], dtype=torch.bool)
    if real is not None:
        asked = real[:, 1:] & real[:, :-1]
    if prefix is not None:
        asked = asked & ~prefix[:, 1:]
    return found.masked_fill(~asked, 0)


def _begun(
    ids: Tensor, real: Tensor | None, prefix: Tensor | None, start: int
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The same with `start` in front."""
    if real is not None and not real[:, 0].all():
        raise config_error(
            "real",
            "must be True at the beginning of every row after start",
            fix="Pad texts on the right.",
        )
    ids = F.pad(ids, (1, 0), value=start)
    real, prefix = (
        None if field is None else F.pad(field, (1, 0), value=True) for field in (real, prefix)
    )
    return ids, real, prefix


def _log_probability(head: Any, hidden: Tensor, ids: Tensor, vocab_size: int) -> Tensor:
    """hidden (b, t, dim), ids (b, t) -> (b, t), in chunks, so that all logits never exist at
    once.
    """
    step = max(1, CHUNK // (len(ids) * vocab_size))
    parts = zip(hidden.split(step, 1), ids.split(step, 1), strict=True)
    return torch.cat(
        [head(h).float().log_softmax(-1).gather(-1, i[..., None])[..., 0] for h, i in parts], 1
    )
