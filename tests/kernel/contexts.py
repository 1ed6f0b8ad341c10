"""Contexts and inputs for the tests of kernels."""

import torch

from xformer_kit.mask import SlidingWindow
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import AttentionContext, Tokens

HEADS, KV, DIM = 4, 2, 3
WINDOW, BOTH = SlidingWindow(window=5), SlidingWindow(window=4, causal=False)


def tokens(length: int, real: list[int] | None = None, document: list[int] | None = None) -> Tokens:
    """`real`: how many tokens of each row are no padding, after them, or in front where the number
    is negative.
    """
    slot, fields = torch.arange(length)[None], {}
    if real is not None:
        fields["real"] = torch.cat([slot < n if n >= 0 else slot >= length + n for n in real])
    if document is not None:
        fields["document"] = (slot >= torch.tensor(document)[:, None]).long()
    return Tokens(slot=slot, **fields).with_positions()


def context(
    kernel, mask, key: Tokens, queries: int | None = None, position: str = "none"
) -> AttentionContext:
    """The newest tokens as queries, all of them by default."""
    place = POSITIONS.create(
        {"name": position}, dim=12, heads=HEADS, head_dim=DIM, max_len=99, layers=1, stack="decoder"
    )
    query = key if queries is None else key.map(lambda field: field[:, -queries:])
    made = AttentionContext(query, key, mask, place)
    return made._replace(
        prepared=kernel.prepare(made, HEADS, "bias" in place.enters, torch.float64)
    )


def inputs(rows: int, queries: int, keys: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    shapes = (rows, HEADS, queries, DIM), (rows, KV, keys, DIM), (rows, KV, keys, DIM + 2)
    return [torch.randn(s, dtype=torch.float64, generator=draw).requires_grad_() for s in shapes]
