"""Differential attention: the difference of two attention maps, in which their noise cancels."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention.base import ATTENTIONS, Attention
from xformer_kit.attention.heads import check_heads, head_channels
from xformer_kit.kernel import Kernel
from xformer_kit.registry import Fault, above, at_least, in_range
from xformer_kit.tensors import hidden, vector
from xformer_kit.tensors.cache import KeyValueCache


@ATTENTIONS.register("differential", also_called=("diff", "diff_attn", "differential_transformer"))
class Differential(Attention):
    """(1 - start) norm((softmax(q1 k1^T * scale) - lambda softmax(q2 k2^T * scale)) v) in each
    head, heads concatenated and projected (Ye et al., 2024, arXiv:2410.05258, section 2.1).

    lambda = exp(a1 . b1) - exp(a2 . b2) + start, learned and shared by the heads, with start = 0.8
    - 0.6 exp(-0.3 (layer - 1)). A head has two queries and keys of head_dim channels and values of
    2 head_dim: with half as many heads as `multi_head` it has as many parameters. norm is x /
    sqrt(mean(x^2) + eps) over the values of a head. Dropout is drawn separately for the two.
    """

    start: Tensor
    output_scale: Tensor  # 1 - start

    parameter_info = {
        "q": hidden("heads*2*head_dim", "dim"),
        "k": hidden("kv_heads*2*head_dim", "dim"),
        "k.bias": vector("kv_heads*2*head_dim", bias=True, zero_gradient=True),
        "v": hidden("kv_heads*2*head_dim", "dim", scales_output=True),
        "o": hidden("dim", "heads*2*head_dim", writes=True),
        "lambda_q": vector("2", "head_dim", shared_by_heads=True),
        "lambda_k": vector("2", "head_dim", shared_by_heads=True),
        "weight": vector("2*head_dim", shared_by_heads=True),
    }

    def __init__(
        self,
        dim: int,
        depth: int,
        kernel: Kernel,
        *,
        heads: int = 4,  # query heads, each of two queries
        kv_heads: int | None = None,  # key and value heads; null is heads
        # channels of each query and key, half of those of values; null is dim / heads / 2
        head_dim: int | None = None,
        bias: bool = False,  # whether the four projections have biases
        scale: float | None = None,  # factor on the scores; null is head_dim^-0.5
        weight: bool = True,  # whether the norm of a head has learned weights, which heads share
        eps: float = 1e-5,  # added to the mean square
        dropout: float = 0.0,  # probability, on the attention weights
    ):
        super().__init__()
        self.head_dim = d = head_channels(dim, heads, head_dim, parts=2)
        self.kv_heads = kv_heads or heads
        self.scale = d**-0.5 if scale is None else scale
        self.q = nn.Linear(dim, heads * 2 * d, bias)
        self.k = nn.Linear(dim, self.kv_heads * 2 * d, bias)
        self.v = nn.Linear(dim, self.kv_heads * 2 * d, bias)
        self.o = nn.Linear(heads * 2 * d, dim, bias)
        start = 0.8 - 0.6 * math.exp(-0.3 * depth)
        # Tensors, because torch.compile would compile a graph for each value of a number.
        self.register_buffer("start", torch.tensor(start), persistent=False)
        self.register_buffer("output_scale", torch.tensor(1 - start), persistent=False)
        self.lambda_q, self.lambda_k = (nn.Parameter(torch.empty(2, d)) for _ in range(2))
        self.weight = nn.Parameter(torch.ones(2 * d)) if weight else None
        self.kernel = kernel
        self.dropout = dropout
        self.eps = eps

    fusible = ("q", "k", "v")

    @classmethod
    def traits(cls, options, dim):
        head_dim = head_channels(dim, options.get("heads") or 1, options.get("head_dim"), parts=2)
        return super().traits({**options, "head_dim": head_dim}, dim)

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        dim, heads = context.dim, options.heads
        if not options.head_dim and heads >= 1 and dim % heads == 0 and dim // heads % 2:
            yield Fault(
                "heads",
                "twice as many must divide model.dim, for a head has two queries",
                got=f"{heads} and {dim}",
                fix="Set attn.head_dim, or choose other heads.",
            )
        yield from in_range(options, dropout=(0, 1))
        yield from above(options, "null is head_dim^-0.5.", scale=0)
        yield from at_least(options, eps=0)

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        drawn = name in ("lambda_q", "lambda_k")
        return 0.1 * torch.randn(shape, generator=generator) if drawn else None

    def split(self, x: Tensor) -> Tensor:
        """(b, t, h * 2 * d) -> (b, 2 * h, t, d): the first halves of all heads, then the second."""
        return x.view(*x.shape[:2], -1, 2, self.head_dim).permute(0, 3, 2, 1, 4).flatten(1, 2)

    def queries_of(self, x: Tensor) -> Tensor:
        return self.split(self.q(x))

    def keys_of(self, x: Tensor) -> Tensor:
        return self.split(self.k(x))

    def forward(self, x, source, context, cache=None):
        """Returns the output (b, t, dim) of x (b, t, dim), with keys and values of x or of source
        (b, s, dim).
        """
        q, k, v = self._project(x, source, context, cache)
        dropout = self.dropout if self.training else 0.0
        outputs = []
        for half, halves in enumerate(zip(q.chunk(2, 1), k.chunk(2, 1), strict=True)):
            scores = None
            if context.scored:
                scores = context.position.scores(HeadHalf(self, half), *halves, context)
            outputs.append(self.kernel(*halves, v, context, self.scale, dropout, scores))
        out = self._difference(*outputs)
        out = F.rms_norm(out, out.shape[-1:], self.weight, self.eps) * self.output_scale
        return self.o(out.transpose(1, 2).flatten(2))  # (b, h, t, 2 d) -> (b, t, dim)

    def _difference(self, first: Tensor, second: Tensor) -> Tensor:
        """first - lambda second, of two attention maps or of their outputs."""
        a, b = (self.lambda_q * self.lambda_k).sum(-1).exp()
        return first - (a - b + self.start) * second

    def attention_weights(self, calls, probe):
        return self._difference(*calls)

    def _project(self, x, source, context, cache) -> tuple[Tensor, ...]:
        """Returns queries (b, 2 * h, t, d), keys (b, 2 * kv, s, d) and values (b, kv, s, 2 * d),
        including the cached ones, queries and keys rotated.
        """
        q, *kv = self.project_qkv(x, source, context, cache)
        q = context.position.rotate(self.split(q), context.query)
        if not kv:
            return q, *cache.kept()
        tokens = context.query if source is None else context.key
        k = context.position.rotate_key(self.split(kv[0]), tokens)
        v = kv[1].unflatten(-1, (-1, 2 * self.head_dim)).transpose(1, 2)
        return q, *((k, v) if cache is None else cache.append(k, v))

    def cache(self, rows, length):
        d, kv = self.head_dim, self.kv_heads
        return KeyValueCache.of(self, (rows, 2 * kv, length, d), (rows, kv, length, 2 * d))


class HeadHalf:
    """One of the two attentions of a Differential, for a position's `scores`."""

    def __init__(self, attn: Differential, half: int):
        self.attn = attn
        self.half = half
        self.scale = attn.scale

    def queries_of(self, x: Tensor) -> Tensor:
        return self.attn.queries_of(x).chunk(2, 1)[self.half]

    def keys_of(self, x: Tensor) -> Tensor:
        return self.attn.keys_of(x).chunk(2, 1)[self.half]
