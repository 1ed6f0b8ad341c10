"""The base class of position encodings, and `none`. A position enters at one or several places:

embed:  added to the token embeddings, before the first block     (learned, sinusoidal)
rotate: applied to queries and keys, inside every attention       (rotary)
bias:   added to the scaled scores, point-wise                    (alibi, t5)
scores: replaces the scores, if they depend on content            (shaw, transformer_xl,
        disentangled)
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from xformer_kit.registry import Context, Fault, Options, Registry, above
from xformer_kit.registry.traits import PositionTraits
from xformer_kit.tensors.tokens import AttentionContext, Tokens, scaled_products

PLACES = ("embed", "rotate", "rotate_key", "bias", "scores")


def positions_are_slots(tokens: Tokens) -> bool:
    """Whether the tokens' positions are their slots. If so, the number of tokens bounds the
    positions, and no value has to be read from the device.
    """
    return tokens.position is tokens.slot


class Position(nn.Module):
    """Base of all positions: does nothing at each of the four places.

    enters: the places where it enters: `embed`, `rotate`, `bias` or `scores`; also `rotate_key` if
    keys are rotated differently from queries, which changes their lengths. Places whose methods the
    class overrides are added automatically; a position declares the places of the tables that
    `prepare` returns.
    breaks: laws that it breaks, with the reason; `shift` if it depends on more than distances
    between tokens.
    learned: whether its bias has weights.
    bounded: whether it supports at most model.max_len tokens.

    An option `per_layer` selects one module per layer instead of one per stack.
    """

    enters: tuple[str, ...] = ()
    breaks: ClassVar[Mapping[str, str]] = {}
    learned = False
    bounded = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {place for place in PLACES if getattr(cls, place) is not getattr(Position, place)}
        own |= {"scores"} if cls.read is not Position.read else set()
        cls.enters = tuple(place for place in PLACES if place in own or place in cls.enters)

    def prepare(self, query: Tokens, key: Tokens, cached: int = 0) -> Any:
        """Returns the object whose `rotate`, `bias` and `scores` are called in this forward of the
        stack.

        Called once per forward. By default it is the position itself; a position that needs tables
        returns a NamedTuple of them with those methods. Keys are rotated before they are cached, so
        `key` holds the same new tokens as `query`, after `cached` earlier ones; in cross attention
        it holds the tokens of the other stack.
        """
        return self

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Embeddings x (b, t, dim) -> the same with the position added."""
        return x

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Rotates queries or keys x (b, h, t, head_dim). `tokens` is the context's query or key."""
        return x

    def rotate_key(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Rotates keys, if they are rotated differently from queries. Tables that define `rotate`
        define both.
        """
        return self.rotate(x, tokens)

    def rotate_both(
        self, q: Tensor, k: Tensor, query: Tokens, key: Tokens
    ) -> tuple[Tensor, Tensor]:
        """Rotates queries (b, h, t, d) and keys (b, kv, s, d). Tables that can rotate both at once
        define it; those without it are called twice.
        """
        return self.rotate(q, query), self.rotate_key(k, key)

    def bias(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        """Returns what is added to the scaled scores. Point-wise like `Mask.allows`: it broadcasts
        to (b, h, q, k).
        """
        raise NotImplementedError

    def scores(self, attn: Any, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """Returns scaled scores (b, h, q, k) that replace q k^T * scale; may use the attention's
        projections. By default q k^T * scale plus what `read` returned.
        """
        content = scaled_products(q, k, attn.scale)
        return content + context.added_scores.to(content.dtype)

    def read(self, x: Tensor, context: AttentionContext, cache: Any) -> Tensor:
        """Returns what is added to the scaled scores of an attention with the input x (b, t, dim),
        (b, h, q, k). `cache` is what `cache()` returned; None outside of generation.
        """
        raise NotImplementedError

    def cache(self, rows: int, length: int) -> Any:
        """Returns an empty cache for `read`, for `rows` sequences of at most `length` tokens; None
        if `read` needs nothing of earlier tokens.
        """
        return None

    def score_gain(self) -> float:
        """Factor on the score scale of an attention that rotates only some of its channels."""
        return 1.0

    def needs_recompute(self, cached: Tokens, total: int) -> bool:
        """Whether cached keys of the tokens `cached` are wrong for a text of `total` tokens,
        because rotations depend on the length. The whole text is then computed again.
        """
        return False

    @classmethod
    def traits(cls) -> PositionTraits:
        """The properties that other components may depend on."""
        return PositionTraits(
            enters=tuple(place for place in cls.enters if place != "rotate_key"),
            isometric="rotate_key" not in cls.enters,
            learned=cls.learned,
            channels=cls.read is Position.read,
            bounded=cls.bounded,
        )


class SinusoidPosition(Position):
    """Base of positions with sines and cosines of dim / 2 rates, theta^(-2i / dim) radians per
    token; up to 1 / theta: theta^(-i / (dim / 2 - 1)).
    """

    def __init__(self, dim: int, theta: float, up_to_theta: bool = False):
        super().__init__()
        self.dim = dim
        self.theta = theta
        self.steps = dim - 2 if up_to_theta else dim

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        yield from above(options, theta=0)

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        if context.dim % 2:
            rule = f"{options.name} pairs sines with cosines, so model.dim must be even"
            yield Fault("", rule, got=context.dim)

    def waves(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """Sines and cosines of positions, (...) -> (..., dim / 2) each. In float64: angles reach
        thousands, where fp32 is off by 1e-4.
        """
        wide = torch.float32 if position.device.type == "mps" else torch.float64  # mps has no fp64
        pairs = torch.arange(0, self.dim, 2, device=position.device, dtype=wide)
        rates = (pairs * (-math.log(self.theta) / self.steps)).exp()
        angle = position[..., None].to(wide) * rates
        return angle.sin(), angle.cos()


def rotate_nothing(tables: Any, x: Tensor, tokens: Tokens) -> Tensor:
    """Returns x: the `rotate` and `rotate_key` of tables that do not rotate."""
    return x


class PositionArguments:
    """What the model passes to the constructor of a position."""

    dim: int  # channels of the residual stream, or of the embeddings if it is added to those
    heads: int  # query heads
    head_dim: int  # channels of a head that it rotates
    max_len: int  # model.max_len, the longest text in tokens
    layers: int  # number of layers of the stack
    stack: str  # name of the stack, "encoder" or "decoder"


POSITIONS = Registry("position", caller_arguments=PositionArguments, base=Position)


@POSITIONS.register("none", also_called=("nope",))
class NoPosition(Position):
    """No position encoding: a causal decoder can learn positions from the mask (Haviv et al., 2022,
    arXiv:2203.16634; Kazemnejad et al., 2023).
    """

    def __init__(self):
        super().__init__()
