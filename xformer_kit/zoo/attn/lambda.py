"""Lambda layer: each token's query is multiplied by a matrix computed from the visible tokens."""

import math

import torch
from torch import Tensor, nn

from xformer_kit.attention import (
    ATTENTIONS,
    Attention,
    KeyValueCache,
    at_least_fp32,
    check_heads,
    head_channels,
    no_autocast,
)
from xformer_kit.position import positions_are_slots
from xformer_kit.registry import Fault, above, at_least
from xformer_kit.tensors import hidden, vector
from xformer_kit.tensors.tokens import AttentionContext

# powers of e between the largest factor and the largest number, for products with queries and
# gradients
MARGIN = 8.0


@ATTENTIONS.register("lambda", also_called=("lambda_layer", "lambda_networks", "lambdanet"))
class Lambda(Attention):
    """y_n = q_n lambda_n * scale in each head with lambda_n = sum_m (K_m + E_{n-m})^T v_m over the
    tokens m that token n sees.

    lambda_n is the sum of a content matrix, in which K is the softmax of keys over those tokens,
    channel by channel, and a position matrix (LambdaNetworks: Bello, 2021, arXiv:2102.08602). Heads
    differ only in their queries and share one lambda.

    E has a row for each distance of up to `scope` tokens on each side and is 0 for larger distances
    (the paper's lambda convolution), so no other position encoding is needed. Weights have any sign
    and do not sum to 1.
    """

    # Paper: batch norm of queries and values.   Here: none, as a token would depend on other texts;
    # placements have norms.
    # Paper: the lambda of each token is computed.   Here: q_n (K_m + E_{n-m})^T, a weight for each
    # pair, the same sum in another order, so that any mask is possible; memory is quadratic.

    # cubes of a stream that placement none leaves to grow
    variants = [{"scope": 4, "v_head_dim": 7, "bias": True, "scale": 0.05}]
    breaks = {
        "symmetry": "a row of E belongs to a distance in the text",
        "source order": "a row of E belongs to a distance from the query's token",
    }
    computes = "mixture"
    bounded = True

    parameter_info = {
        "q": hidden("heads*head_dim", "dim"),
        "k": hidden("head_dim", "dim", shared_by_heads=True),
        # The same factor above and below in the softmax over tokens.
        "k.bias": vector("head_dim", bias=True, zero_gradient=True, shared_by_heads=True),
        "v": hidden("v_head_dim", "dim", scales_output=True, shared_by_heads=True),
        "o": hidden("dim", "heads*v_head_dim", writes=True),
        "places": vector("positions", "head_dim", shared_by_heads=True),
    }

    def __init__(
        self,
        dim: int,
        max_len: int,
        *,
        heads: int = 8,  # queries per token
        head_dim: int | None = None,  # channels of queries and keys; null is dim / heads
        # channels of the value, which all heads share; null is head_dim
        v_head_dim: int | None = None,
        scope: int | None = None,  # largest distance with a row of E, in tokens; null is all
        bias: bool = False,  # whether the four projections have biases
        scale: float = 1.0,  # factor on queries
    ):
        super().__init__()
        self.head_dim = d = head_channels(dim, heads, head_dim)
        self.v_head_dim = v_head_dim or d
        self.scale = scale
        self.q = nn.Linear(dim, heads * d, bias)
        self.k = nn.Linear(dim, d, bias)
        self.v = nn.Linear(dim, self.v_head_dim, bias)
        self.o = nn.Linear(heads * self.v_head_dim, dim, bias)
        self.scope = max_len - 1 if scope is None else min(scope, max_len - 1)
        self.max_len = max_len
        self.places = nn.Parameter(torch.empty(2 * self.scope + 1, d))

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        yield from at_least(options, "channel", v_head_dim=1)
        yield from at_least(options, "token", scope=0)
        yield from above(options, scale=0)

    @classmethod
    def cannot(cls, options, context):
        position = context.names["position"]
        if set(context.position.enters) - {"embed"}:
            yield Fault(
                "",
                f"lambda has no score of two tokens, into which position '{position}' enters, and"
                " places of its own",
                fix="Choose position=none, learned or sinusoidal.",
            )

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        """N(0, 1 / rows) for E, so that the sum over a text is about as large as a value."""
        if name != "places":
            return None
        return torch.randn(shape, generator=generator) * shape[0] ** -0.5

    def forward(self, x, source, context, cache=None):
        q = self.q(x) * self.scale
        q = q.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (b, t, h * d) -> (b, h, t, d)
        if cache is not None and source is not None and cache.length:
            k, v = cache.kept()
        else:
            read = x if source is None else source
            k, v = self.k(read)[:, None], self.v(read)[:, None]  # (b, 1, s, d)
            k, v = (k, v) if cache is None else cache.append(k, v)
        out = self.weights(q, k, context).to(v.dtype) @ v
        return self.o(out.transpose(1, 2).flatten(2))  # (b, h, t, e) -> (b, t, dim)

    def weights(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """Returns the weight of each token for each query, (b, h, t, s)."""
        seen = context.visible(q.shape[1])
        weights = self._of_content(q, k, seen, context.key.real) + self._of_places(q, context)
        return weights if seen is None else weights.masked_fill(~seen, 0)

    def attention_weights(self, calls, probe):
        return probe(self.v_head_dim)

    def _of_content(self, q: Tensor, k: Tensor, seen: Tensor | None, real: Tensor | None) -> Tensor:
        """q_n K_m^T with K_m = exp(k_m - s) / sum_j exp(k_j - s) over the j that n sees, (b, h, t,
        s); what n does not see is arbitrary. In fp32 at least, whose exponent the factors need.

        The largest key that a query sees may be far below the largest of all, so s is the middle of
        a channel's keys, and both factors span the whole exponent: keys that differ by less than
        about 145 in fp32 keep their differences for every query.
        """
        with no_autocast(q):
            q, k = at_least_fp32(q), at_least_fp32(k)
            room = math.log(torch.finfo(k.dtype).max) - math.log(k.shape[-2]) - MARGIN
            # (b, 1, s, d); clamped, since padding may be larger than any real key
            high = (k - _middle(k.detach(), real, room)).clamp(max=room).exp()
            total = high.sum(-2, keepdim=True) if seen is None else seen.to(high.dtype) @ high
            # A logarithm, for the derivative of q / total would square what is near the end of the
            # exponent.
            return (q * (-total.clamp(min=math.exp(-room - MARGIN / 2)).log()).exp()) @ high.mT

    def _of_places(self, q: Tensor, context: AttentionContext) -> Tensor:
        """q_n E_{n-m}^T, (b, h, t, s)."""
        distance = context.query.position[:, :, None] - context.key.position[:, None]
        row = (distance + self.scope).clamp(0, 2 * self.scope)[:, None]  # (b or 1, 1, t, s)
        weights = q @ self.places.to(q.dtype).T
        weights = weights.gather(-1, row.expand(*q.shape[:2], -1, -1))
        ordered = not context.cross and positions_are_slots(context.query)
        if self.scope == self.max_len - 1 and ordered:  # no distance is larger
            return weights
        return weights.masked_fill((distance.abs() > self.scope)[:, None], 0)

    def cache(self, rows, length):
        shapes = ((rows, 1, length, channels) for channels in (self.head_dim, self.v_head_dim))
        return KeyValueCache.of(self, *shapes)


def _middle(k: Tensor, real: Tensor | None, room: float) -> Tensor:
    """The midpoint of the largest and the smallest real key of each channel, but at most `room`
    below the largest.
    """
    if real is None:
        low, top = k.amin(-2, keepdim=True), k.amax(-2, keepdim=True)
    else:
        padding, far = ~real[:, None, :, None], torch.finfo(k.dtype).max / 4
        low = k.masked_fill(padding, far).amin(-2, keepdim=True)
        top = k.masked_fill(padding, -far).amax(-2, keepdim=True)
    return torch.maximum((low + top) / 2, top - room)
