"""Attention with separate heads for the search and for the retrieved values."""

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from xformer_kit.attention import (
    ATTENTIONS,
    HeadShape,
    KeyValueCache,
    MultiHead,
    Projections,
    WeightOptions,
)
from xformer_kit.kernel import Kernel
from xformer_kit.registry import Unused, at_least
from xformer_kit.tensors import hidden


@ATTENTIONS.register(
    "compositional", also_called=("search_and_retrieval",), similar=("disentangled_attention",)
)
class Compositional(MultiHead):
    """Each of S search heads applies its attention weights to R values, and mixes the results with
    weights that depend on the query's token.

    A search is A_i = softmax(mask(q_i k_i^T * scale)), a retrieval r_ij = A_i v_j, and the mixture
    sum_j softmax_j(a_i . (r_ij B) / sqrt(channels)) r_ij with a = x W, from the query's token;
    heads are concatenated and projected (Mittal et al., 2021, arXiv:2110.09419).

    The R values belong to no head, so S x R pairs of a search and a retrieval are possible. Heads
    share B. With one retrieval, heads have their own keys and one shared value.
    """

    variants = [
        {
            "retrievals": 3,
            "kv_heads": 3,
            "v_head_dim": 5,
            "choice_dim": 4,
            "bias": True,
            "scale": 0.3,
        }
    ]

    parameter_info = {
        "v": hidden("retrievals*v_head_dim", "dim", scales_output=True, shared_by_heads=True),
        "choice_q": hidden("heads*choice_dim", "dim"),
        "choice_k": hidden("choice_dim", "v_head_dim", shared_by_heads=True),
    }

    def __init__(
        self,
        dim: int,
        norm: Callable[..., nn.Module],
        kernel: Kernel,
        *,
        heads: int = 8,  # searches
        retrievals: int = 2,  # values per token
        kv_heads: int | None = None,  # keys per token; null is heads
        head_dim: int | None = None,  # channels of a query and a key; null is dim / heads
        v_head_dim: int | None = None,  # channels of a value; null is head_dim
        choice_dim: int | None = None,  # channels of a and B; null is v_head_dim
        bias: bool = False,  # whether the projections have biases
        scale: float | None = None,  # factor on scores; null is head_dim^-0.5
        dropout: float = 0.0,  # probability, on the weights of a search
    ):
        super().__init__(
            dim,
            norm,
            kernel,
            projections=Projections(bias),
            weights=WeightOptions(scale, dropout=dropout),
            shape=HeadShape(heads, kv_heads, head_dim, v_head_dim),
        )
        self.retrievals = retrievals
        value_dim = self.v_head_dim
        self.v = nn.Linear(dim, retrievals * value_dim, bias)
        self.v_head_dim = retrievals * value_dim
        written = hidden("dim", "heads*v_head_dim", writes=True, head_channels=value_dim)
        self.parameter_info = {"o": written}
        channels = choice_dim or value_dim
        self.choice_q = nn.Linear(dim, heads * channels, bias) if retrievals > 1 else None
        # A bias would add the same to each retrieval.
        self.choice_k = nn.Linear(value_dim, channels, False) if retrievals > 1 else None

    @classmethod
    def traits(cls, options, dim):
        return replace(super().traits(options, dim), values=False)  # values belong to no head

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from at_least(options, "retrieval", retrievals=1)
        yield from at_least(options, "channel", choice_dim=1)

    @classmethod
    def cannot(cls, options, context):
        yield from super().cannot(options, context)
        if options.choice_dim is not None and options.retrievals == 1:
            yield Unused(
                "choice_dim",
                "is where one of several retrievals is chosen, and attn.retrievals is 1",
                options.choice_dim,
                "Leave it null, or try attn.retrievals=2.",
            )

    def forward(self, x, source, context, cache=None):
        q, k, v = self.project(x, source, context, cache)
        scores = context.position.scores(self, q, k, context) if context.scored else None
        dropout = self.dropout if self.training else 0.0
        v = v.expand(-1, k.shape[1], -1, -1)  # (b, 1, s, r * e), the same for all heads
        found = self.kernel(q, k, v, context, self.scale, dropout, scores)
        found = found.unflatten(-1, (self.retrievals, -1))  # (b, h, t, r, e)
        if self.choice_q is None:
            out = found[..., 0, :]
        else:
            choice = self.choice_q(x).unflatten(-1, (found.shape[1], -1))
            choice = choice.transpose(1, 2)[..., None]  # (b, h, t, c, 1)
            scores = self.choice_k(found) @ choice * choice.shape[-2] ** -0.5
            out = (scores.softmax(-2) * found).sum(-2)  # (b, h, t, r, 1) * (b, h, t, r, e)
        return self.o(out.transpose(1, 2).flatten(2))  # (b, h, t, e) -> (b, t, dim)

    def cache(self, rows, length):
        keys = rows, self.kv_heads, length, self.head_dim
        return KeyValueCache.of(self, keys, (rows, 1, length, self.v_head_dim))
