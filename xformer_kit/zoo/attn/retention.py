"""Retention: unnormalised attention whose weights decay by a factor per token."""

import math
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from xformer_kit.attention import (
    ATTENTIONS,
    Recurrent,
    StateCache,
    at_least_fp32,
    check_heads,
    head_channels,
)
from xformer_kit.kernel import Kernel, Recurrence, segments
from xformer_kit.registry import above, at_least
from xformer_kit.tensors import hidden


@ATTENTIONS.register("retention", also_called=("retnet", "multi_scale_retention", "msr"))
class Retention(Recurrent):
    """norm(sum_j gamma^(i - j) (q_i k_j / sqrt(head_dim)) v_j) over the past in each head, times
    silu(x G), projected (Sun et al., 2023, arXiv:2307.08621, eq. 5 to 8).

    gamma_h = 1 - 2^(-5 - h), h = 0, 1, ... (`powers`), or 1 - gamma_h from 1/32 to 1/512 in even
    ratios (`spaced`, as in the experiments). i - j counts real tokens of a document. norm is (y -
    mean) / sqrt(var + eps) over a head's values, which cancels the paper's other scalings of a row.
    The paper rotates queries and keys: position=rotary, or xpos.
    """

    # a first token is a sign, but for eps
    variants = [{"heads": 2, "head_dim": 6, "decay": "spaced", "eps": 0.01}]

    parameter_info = {
        "q": hidden("heads*head_dim", "dim"),
        "k": hidden("heads*head_dim", "dim"),
        "v": hidden("heads*v_head_dim", "dim", scales_output=True),
        "gate": hidden("heads*v_head_dim", "dim", scales_output=True),
        "o": hidden("dim", "heads*v_head_dim", writes=True),
    }

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        *,
        heads: int = 4,  # heads, each with queries, keys and values
        head_dim: int | None = None,  # channels of a head's queries and keys; null is dim / heads
        v_head_dim: int | None = None,  # channels of a head's values; null is 2 head_dim
        decay: Literal["powers", "spaced"] = "powers",  # how heads differ in what they forget
        gate: bool = True,  # whether the output is gated by the input
        eps: float = 1e-5,  # added to the variance
        chunk: int = 64,  # tokens that are computed at once in training
    ):
        super().__init__()
        self.head_dim = head_channels(dim, heads, head_dim)
        self.v_head_dim = v_head_dim or 2 * self.head_dim
        self.heads = heads
        self.kernel = kernel
        self.eps = eps
        self.chunk = chunk
        self.q, self.k = (nn.Linear(dim, heads * self.head_dim, False) for _ in range(2))
        self.v = nn.Linear(dim, heads * self.v_head_dim, False)
        self.o = nn.Linear(heads * self.v_head_dim, dim, False)
        self.gate = nn.Linear(dim, heads * self.v_head_dim, False) if gate else None
        self.fusible = ("q", "k", "v", "gate") if gate else ("q", "k", "v")
        self.decay = tuple(math.log1p(-share) for share in forget_rates(heads, decay))

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        yield from at_least(options, "channels", v_head_dim=2)  # of one, the mean takes all
        yield from at_least(options, "token", chunk=1)
        yield from above(options, eps=0)

    def forward(self, x, source, context, cache=None):
        maps = self.project_input(x, context)
        q, k, v = (
            m.unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in map(at_least_fp32, maps[:3])
        )
        q = context.position.rotate(q, context.query)
        k = context.position.rotate_key(k, context.query)
        real, decay = context.query.real, torch.tensor(self.decay, dtype=q.dtype, device=q.device)
        decay = decay.view(1, -1, 1).expand(1, -1, q.shape[2])  # (1, h, t)
        if real is not None:  # padding leaves the state unchanged
            k, decay = k * real[:, None, :, None], decay * real[:, None]
        out, state = self.run_recurrence(
            Recurrence(q * self.head_dim**-0.5, k, v, decay, None, segments(context)),
            None if cache is None else cache.tensors[0],
        )
        if cache is not None:
            cache.append(state)
            cache.length += x.shape[1]
        out = F.layer_norm(out, out.shape[-1:], eps=self.eps)
        out = out.transpose(1, 2).flatten(2).to(maps[0].dtype)
        return self.o(out if self.gate is None else out * F.silu(maps[3]))

    def cache(self, rows, length):
        return StateCache.of(self, (rows, self.heads, self.head_dim, self.v_head_dim))


def forget_rates(heads: int, decay: str) -> list[float]:
    """The share of its state that each head forgets per token, 1 - gamma."""
    span, ratios = (1, 1) if decay == "powers" else (4, max(1, heads - 1))
    return [2.0 ** (-5 - span * h / ratios) for h in range(heads)]
