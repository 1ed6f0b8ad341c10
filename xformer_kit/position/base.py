"""The contract of a position, and none at all. It enters at one or several places:

embed:  on the token embeddings, before the first block     (learned, sinusoidal)
rotate: on queries and keys, inside every attention         (rotary)
bias:   added to the scaled scores, point-wise              (alibi, t5)
scores: replaces the scores, where they depend on content   (shaw, transformer_xl,
        disentangled)
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from xformer_kit.model.tokens import AttentionContext, Tokens
from xformer_kit.registry import Registry
from xformer_kit.registry.traits import PositionTraits

PLACES = ("embed", "rotate", "rotate_key", "bias", "scores")


def plain(tokens: Tokens) -> bool:
    """Whether the tokens' positions are their slots: then the number of tokens bounds them, without
    a read from the device.
    """
    return tokens.position is tokens.slot


class Position(nn.Module):
    """Base of all positions: does nothing at each of the four places.

    enters: the places where it enters, of `embed`, `rotate`, `bias` and `scores`; and `rotate_key`
    if keys are rotated otherwise than queries, which changes their lengths. Those of its own
    methods are among them; a position declares those of the tables that `begin` returns.
    breaks: laws that it breaks, with the reason: `shift` if more matters than distances between
    tokens.
    learned: whether its bias has weights.
    bounded: whether it supports at most model.max_len tokens.

    An option `per_layer` states whether each layer has one of its own, in place of the stack's.
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

    def begin(self, query: Tokens, key: Tokens, cached: int = 0) -> Any:
        """Called once per forward of the stack; returns what answers `rotate`, `bias` and `scores`
        in this forward.

        By default the position itself. One that needs tables returns a NamedTuple of them with
        those methods. Keys are rotated before they are cached, so `key` holds the same new tokens
        as `query`, after `cached` earlier ones; in attention to another stack it holds that stack's
        tokens.
        """
        return self

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        """x (b, t, dim) -> (b, t, dim)."""
        return x

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Queries or keys x (b, h, t, head_dim) -> the same shape. `tokens` is the context's query
        or key.
        """
        return x

    def rotate_key(self, x: Tensor, tokens: Tokens) -> Tensor:
        """The same for keys alone, where they turn otherwise than queries. Tables that define
        `rotate` define both.
        """
        return self.rotate(x, tokens)

    def bias(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        """Added to the scaled scores. Point-wise like `Mask.allows`: broadcasts to (b, h, q, k)."""
        raise NotImplementedError

    def scores(self, attn: Any, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """Scaled scores (b, h, q, k) in place of q k^T * scale; may use the attention's
        projections. By default q k^T * scale and what `read` returned.
        """
        content = q @ spread(k, q.shape[1]).mT * attn.scale
        return content + context.added_scores.to(content.dtype)

    def read(self, x: Tensor, context: AttentionContext, cache: Any) -> Tensor:
        """What is added to the scaled scores of an attention with the input x (b, t, dim), (b, h,
        q, k). `cache`: its own, None outside of generation.
        """
        raise NotImplementedError

    def cache(self, rows: int, length: int) -> Any:
        """An empty cache for `read`, for `rows` sequences of at most `length` tokens; None if it
        needs nothing of earlier tokens.
        """
        return None

    def score_gain(self) -> float:
        """Factor on the scale of scores, which an attention takes that shows a position some of its
        channels alone.
        """
        return 1.0

    def stale(self, held: Tokens, total: int) -> bool:
        """Whether what a cache holds of the tokens `held` is wrong beside `total` tokens, because
        the position of all of them changes with the length. The whole text is then read anew.
        """
        return False

    @classmethod
    def traits(cls) -> PositionTraits:
        return PositionTraits(
            enters=tuple(place for place in cls.enters if place != "rotate_key"),
            isometric="rotate_key" not in cls.enters,
            learned=cls.learned,
            channels=cls.read is Position.read,
            bounded=cls.bounded,
        )


def still(tables: Any, x: Tensor, tokens: Tokens) -> Tensor:
    """The `rotate` and `rotate_key` of tables that turn nothing."""
    return x


def spread(x: Tensor, heads: int) -> Tensor:
    """Keys for every query head: (b, kv, k, d) -> (b, h, k, d)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


POSITIONS = Registry(
    "position", given=("dim", "heads", "head_dim", "max_len", "layers", "stack"), base=Position
)


@POSITIONS.register("none", also_called=("nope",))
class NoPosition(Position):
    """No position: a causal decoder can still count (Haviv et al., 2022, arXiv:2203.16634;
    Kazemnejad et al., 2023).
    """

    def __init__(self):
        super().__init__()
