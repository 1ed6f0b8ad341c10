"""Learned keys and values beside those of a text."""

import torch
from torch import Tensor, nn

from xformer_kit.attention.base import channels
from xformer_kit.kernel.reference import spread


class Memory(nn.Module):
    """Some keys and values of each head that are weights: [M_k; K] and [M_v; V] in place of K and V
    (persistent memory: Sukhbaatar et al., 2019, arXiv:1907.01470). Every query sees them, whatever
    the mask hides, and they stand nowhere.
    """

    # Paper: M_k and M_v are drawn as wide as 1, and scaled.   Here: both are drawn as embeddings
    # are.

    looked_up = True

    def __init__(self, kv_heads: int, count: int, head_dim: int, v_head_dim: int):
        super().__init__()
        self.k = nn.Parameter(torch.empty(kv_heads, count, head_dim))
        self.v = nn.Parameter(torch.empty(kv_heads, count, v_head_dim))

    def scores(self, asks: Tensor, keys: Tensor) -> Tensor:
        """Products of queries as they are where nothing turns them, (b, h, t, d), with keys (kv, n,
        d) -> (b, h, t, n).
        """
        return asks @ spread(keys[None], asks.shape[1]).mT.to(asks.dtype)

    def beside(self, q: Tensor, k: Tensor, asks: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Queries, and keys with those of the memory in front: q (b, h, t, d) and k (b, kv, s, d)
        -> k (b, kv, n + s, d).

        Where queries are turned by their places, turned ones would tell a learned key where they
        stand. Then products with learned keys, which need queries that are not turned, come as n
        more channels or a few more than n, of which key j of the memory reads the j-th: q (b, h, t,
        d + n), k (b, kv, n + s, d + n).
        """
        keys = keys.to(k.dtype)
        if asks is q:
            return q, torch.cat([keys[None].expand(len(k), -1, -1, -1), k], 2)
        heads, count, width = keys.shape
        wide = channels(width, count)
        q = torch.cat([q, nn.functional.pad(self.scores(asks, keys), (0, wide - count))], -1)
        learned = torch.cat(
            [keys.new_zeros(count, width), torch.eye(count, wide, dtype=k.dtype, device=k.device)],
            -1,
        )
        k = nn.functional.pad(k, (0, wide))
        return q, torch.cat([learned.expand(len(k), heads, -1, -1), k], 2)

    def values(self, v: Tensor) -> Tensor:
        """v (b, kv, s, e) -> (b, kv, n + s, e)."""
        return torch.cat([self.v.to(v.dtype)[None].expand(len(v), -1, -1, -1), v], 2)
