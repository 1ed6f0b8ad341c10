"""The tokens that extras put in front of every text."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from xformer_kit.registry import config_error
from xformer_kit.tensors.tokens import Tokens


class WithFront(NamedTuple):
    """The stream (b, t, dim) of a call, its tokens and keys, with the tokens in front, and a
    function that takes those out of a tensor (..., t, dim).
    """

    x: Tensor
    tokens: Tokens
    key: Tokens
    text_of: Callable[[Tensor], Tensor]


def with_front(x: Tensor, tokens: Tokens, key: Tokens, front: Tensor, cached: bool) -> WithFront:
    """Puts tokens with the embeddings `front` (n, dim) in front of each row, or of each document of
    a row. A later call of generation (`key` is longer) has them in its keys.

    Raises ConfigError for documents in generation, in which a document may begin in a later call.
    """
    if key.document is not None:
        if cached:
            raise config_error(
                "document",
                "generation has one document in a row if an extra puts tokens in front of it",
                fix="Give each document a row of its own.",
            )
        return _in_front_of_documents(x, tokens, front)
    n = len(front)
    key, begins = key.with_front(n), key.length == tokens.length
    if not begins:
        return WithFront(x, tokens.after_front(n), key, lambda h: h)
    x = torch.cat([front.to(x.dtype).expand(len(x), -1, -1), x], 1)
    return WithFront(x, key, key, lambda h: h[..., n:, :])


def _in_front_of_documents(x: Tensor, tokens: Tokens, front: Tensor) -> WithFront:
    """The number of documents is read from the device. Rows with fewer end in padding."""
    runs, n = tokens.document_runs().expand(len(x), -1), len(front)
    number = torch.arange(int(runs.amax()) + 1, device=runs.device)
    start = (runs[:, None] < number[:, None]).sum(-1)  # (b, documents): the first token of each
    inside = runs[:, None] == number[:, None]
    if tokens.real is not None:
        inside = inside & tokens.real[:, None]
    first = inside.int().argmax(-1).repeat_interleave(n, -1)  # real token of each document
    new = Tokens(
        ids=torch.full_like(first, -1),
        position=torch.take_along_dim(tokens.position, first, -1),  # type: ignore[arg-type]
        document=torch.take_along_dim(tokens.document, first, -1),  # type: ignore[arg-type]
        real=(start < tokens.length).repeat_interleave(n, -1),
    )
    text_at = torch.arange(tokens.length, device=runs.device) + n * (runs + 1)
    new_at = (start + n * number)[..., None] + torch.arange(n, device=runs.device)
    order = torch.cat([text_at, new_at.flatten(1)], -1).argsort(-1)
    all_tokens = tokens._replace(slot=None).concat(new).reordered(order)
    all_tokens = all_tokens._replace(slot=torch.arange(order.shape[1], device=runs.device)[None])
    x = torch.cat([x, front.to(x.dtype).repeat(len(number), 1).expand(len(x), -1, -1)], 1)
    x = torch.take_along_dim(x, order[..., None], 1)

    def text_of(h: Tensor) -> Tensor:
        return h.gather(-2, text_at[..., None].expand(*h.shape[:-2], -1, h.shape[-1]))

    return WithFront(x, all_tokens, all_tokens, text_of)
