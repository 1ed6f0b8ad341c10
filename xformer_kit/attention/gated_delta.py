"""The gated delta rule: each token replaces the value of its key in a state, which decays."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention.base import ATTENTIONS
from xformer_kit.attention.heads import check_heads, head_channels
from xformer_kit.attention.recurrent import Recurrent
from xformer_kit.kernel import Kernel
from xformer_kit.kernel.recurrence import Recurrence, segments
from xformer_kit.registry import Fault, above, at_least
from xformer_kit.tensors import SubmoduleInfo, hidden, vector
from xformer_kit.tensors.cache import StateCache
from xformer_kit.tensors.precision import at_least_fp32
from xformer_kit.tensors.short_conv import ShortConvolution
from xformer_kit.tensors.tokens import expand_heads


@ATTENTIONS.register(
    "gated_delta",
    also_called=("gated_deltanet", "gdn"),
    similar=("deltanet",),
)
class GatedDelta(Recurrent):
    """q_t S_t / sqrt(head_dim) with S_t = alpha_t (I - beta_t k_t^T k_t) S_{t-1} + beta_t k_t^T v_t
    in each head (Yang et al., 2024, arXiv:2412.06464, eq. 10 and section 3.4).

    The output of each head is normalised and multiplied by silu(x G), heads are concatenated and
    projected. q, k, v are silu(conv(x W)), with a convolution over the last `conv` tokens in each
    channel; q and k are scaled to length 1. alpha = exp(-exp(log_rate) softplus(x A + step)), beta
    = sigmoid(x B). Groups of v_heads / heads value heads share queries and keys. Without `decay`
    alpha is 1: DeltaNet (Yang et al., 2024, arXiv:2406.06484).
    """

    parameter_info = {
        "q": hidden("heads*head_dim", "dim"),
        "k": hidden("heads*head_dim", "dim"),
        "v": hidden("v_heads*v_head_dim", "dim", scales_output=True),
        "beta": hidden("v_heads", "dim"),
        "o": hidden("dim", "v_heads*v_head_dim", writes=True),
        "q_conv": SubmoduleInfo({"convolved": "heads*head_dim"}),
        "k_conv": SubmoduleInfo({"convolved": "heads*head_dim"}),
        "v_conv": SubmoduleInfo({"convolved": "v_heads*v_head_dim"}),
        "alpha": hidden("v_heads", "dim"),
        "log_rate": vector("v_heads"),
        "step": vector("v_heads"),
        "gate": hidden("v_heads*v_head_dim", "dim", scales_output=True),
        "weight": vector("v_head_dim", shared_by_heads=True),
    }

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        *,
        heads: int = 4,  # heads of queries and keys
        v_heads: int | None = None,  # heads of values, each with a state; null is heads
        head_dim: int | None = None,  # channels of a head's queries and keys; null is dim / heads
        v_head_dim: int | None = None,  # channels of a head's values; null is 2 head_dim
        conv: int = 4,  # tokens in the window of the short convolutions; 1 is only the token itself
        decay: bool = True,  # whether the state decays, at a rate computed from the input
        # whether beta is between 0 and 2 instead of 1, so that the old value may change its sign
        negative: bool = False,
        gate: bool = True,  # whether the output is gated by the input
        eps: float = 1e-6,  # added to the mean square of the output
        chunk: int = 64,  # tokens that are computed at once in training
    ):
        super().__init__()
        self.head_dim = head_channels(dim, heads, head_dim)
        self.heads = heads
        self.v_heads = v_heads or heads
        self.v_head_dim = v_head_dim or 2 * self.head_dim
        self.kernel = kernel
        self.eps = eps
        self.chunk = chunk
        self.max_beta = 2.0 if negative else 1.0
        of_keys = heads * self.head_dim
        of_values = self.v_heads * self.v_head_dim
        self.q, self.k = (nn.Linear(dim, of_keys, False) for _ in range(2))
        self.v = nn.Linear(dim, of_values, False)
        self.beta = nn.Linear(dim, self.v_heads, False)
        self.o = nn.Linear(of_values, dim, False)
        self.q_conv, self.k_conv = (ShortConvolution(of_keys, conv) for _ in range(2))
        self.v_conv = ShortConvolution(of_values, conv)
        self.alpha = nn.Linear(dim, self.v_heads, False) if decay else None
        self.log_rate, self.step = (
            nn.Parameter(torch.empty(self.v_heads)) if decay else None for _ in range(2)
        )
        self.gate = nn.Linear(dim, of_values, False) if gate else None
        self.weight = nn.Parameter(torch.ones(self.v_head_dim))
        self.fusible = ("q", "k", "v", "beta", *(["alpha"] * decay), *(["gate"] * gate))

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        if (
            options.v_heads is not None
            and options.heads >= 1
            and (options.v_heads < 1 or options.v_heads % options.heads)
        ):
            yield Fault(
                "v_heads",
                "must be a multiple of attn.heads",
                got=f"{options.v_heads} and {options.heads}",
                fix=f"Try {options.heads}.",
            )
        yield from at_least(options, "channel", v_head_dim=1)
        yield from at_least(options, "token", conv=1, chunk=1)
        yield from above(options, eps=0)

    @classmethod
    def position_reason(cls, context):
        if context.position.isometric:
            return super().position_reason(context)
        reason = (
            "attn 'gated_delta' replaces the value of a key of length 1 in its state, and"
            f" position '{context.names['position']}' changes lengths, so that the state may"
            " grow without bound"
        )
        return reason, "rotary or none"

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        """exp(log_rate) from U(1, 16), softplus(step) log-uniform from 0.001 to 0.1, as in
        Mamba-2 (Dao and Gu, 2024, arXiv:2405.21060) and the paper's code.
        """
        if name == "log_rate":
            return (1 + 15 * torch.rand(shape, generator=generator)).log()
        if name == "step":
            low, high = math.log(1e-3), math.log(0.1)
            step = (low + (high - low) * torch.rand(shape, generator=generator)).exp()
            return step + (-torch.expm1(-step)).log()  # softplus of it is `step`
        return None

    def forward(self, x, source, context, cache=None):
        """Returns the output (b, t, dim) of x (b, t, dim). `cache` holds the state (b, h, d, e) and
        the last inputs of the convolutions.
        """
        maps = self.project_input(x, context)
        projected = dict(zip(self.fusible, maps, strict=True))
        segment, real = segments(context), context.query.real
        state, *before = (None,) * 4 if cache is None else cache.tensors
        ends, rows = [], []
        for i, name in enumerate("qkv"):
            convolution = getattr(self, f"{name}_conv")
            past = before[i]
            if past is None:
                size = convolution.width - 1, projected[name].shape[-1]
                past = projected[name].new_zeros(x.shape[0], *size)
            out, end = convolution(projected[name], past, real, segment)
            ends.append(end)
            rows.append(F.silu(at_least_fp32(out)))
        r = self._recurrence(rows, projected, context, segment)
        out, state = self.run_recurrence(r, state)
        if cache is not None:
            cache.append(state, *ends)
            cache.length += x.shape[1]
        out = F.rms_norm(out, out.shape[-1:], at_least_fp32(self.weight), self.eps)
        out = out.transpose(1, 2).flatten(2)  # (b, h, t, e) -> (b, t, h * e)
        if self.gate is not None:
            out = out * F.silu(at_least_fp32(projected["gate"]))
        return self.o(out.to(maps[0].dtype))

    def _recurrence(self, rows, projected, context, segment) -> Recurrence:
        """The recurrence of queries, keys and values `rows`, and of the other projections."""
        q, k = (unit_length(x.unflatten(-1, (self.heads, -1))).transpose(1, 2) for x in rows[:2])
        q = context.position.rotate(q, context.query)
        k = context.position.rotate_key(k, context.query)
        v = rows[2].unflatten(-1, (self.v_heads, -1)).transpose(1, 2)
        beta = at_least_fp32(projected["beta"]).sigmoid().mT * self.max_beta  # (b, v_heads, t)
        decay, real = None, context.query.real
        if self.log_rate is not None:
            rate = F.softplus(at_least_fp32(projected["alpha"]) + at_least_fp32(self.step)).mT
            decay = -at_least_fp32(self.log_rate).exp()[:, None] * rate
        if real is not None:  # padding leaves the state unchanged
            k = k * real[:, None, :, None]
            decay = None if decay is None else decay * real[:, None]
        q, k = (expand_heads(x, self.v_heads) for x in (q * self.head_dim**-0.5, k))
        return Recurrence(q, k, v, decay, beta, segment)

    def cache(self, rows, length):
        back = self.q_conv.width - 1
        states = (rows, self.v_heads, self.head_dim, self.v_head_dim)
        convolutions = self.q_conv, self.k_conv, self.v_conv
        return StateCache.of(self, states, *((rows, back, len(c.weight)) for c in convolutions))


def unit_length(x: Tensor) -> Tensor:
    """x / sqrt(|x|^2 + 1e-6), as in the paper's code."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
