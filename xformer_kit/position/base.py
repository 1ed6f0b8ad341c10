"""The contract of a position, and none at all.

embed:  on the token embeddings, before the first block     (learned, sinusoidal)
rotate: on queries and keys, inside every attention         (rotary)
bias:   added to the scaled scores, point-wise              (alibi, t5)
scores: replaces the scores, where they depend on content   (shaw, transformer_xl,
        disentangled)
"""

from typing import Any

from torch import Tensor, nn

from xformer_kit.model.tokens import Tokens, View
from xformer_kit.registry import Registry
from xformer_kit.registry.traits import PositionTraits


def plain(tokens: Tokens) -> bool:
    """Whether the tokens' positions are their slots: then the number of tokens bounds them, without
    a read from the device.
    """
    return tokens.position is tokens.slot


class Position(nn.Module):
    """Base of all positions: does nothing at each of the four places.

    relative: whether only distances between tokens matter.
    isometric: whether rotation keeps the lengths of queries and keys, so that a norm behind it
    takes nothing away.
    learned: whether its bias has weights.
    channels: whether its `scores` depend on the channels of queries and keys; else it adds to q k^T
    * scale, whatever those are.
    whole: whether `begin` is given all keys, those that are cached too.
    reads: whether `read` is called before each attention, with what the tokens hold.
    tables: the class of what `begin` returns, where that is not the position: it answers `rotate`,
    `bias`, `scores`.
    per_layer: not an attribute but an option that a position may have: whether each layer has one
    of its own, in place of the stack's.
    max_len: the largest number of positions, None where there is no limit. bounded: whether
    model.max_len is always one.
    """

    relative = True
    isometric = True
    learned = False
    channels = True
    whole = False
    reads = False
    tables: type | None = None
    bounded = False
    max_len: int | None = None

    def begin(self, query: Tokens, key: Tokens) -> Any:
        """Called once per forward of the stack; returns what answers `rotate`, `bias` and `scores`
        in this forward.

        By default the position itself. One that needs tables returns a NamedTuple of them, of the
        class `tables`, with those methods. Keys are rotated before they are cached, so `key` holds
        the same new tokens as `query`; in attention to another stack it holds that stack's tokens,
        and for a position that is `whole` all tokens, cached ones included.
        """
        return self

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        """x (b, t, dim) -> (b, t, dim)."""
        return x

    def rotate(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Queries or keys x (b, h, t, head_dim) -> the same shape. `tokens` is the view's query or
        key.
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

    def scores(self, attn: nn.Module, q: Tensor, k: Tensor, view: View) -> Tensor:
        """Scaled scores (b, h, q, k) in place of q k^T * scale; may use the attention's
        projections.
        """
        raise NotImplementedError

    def read(self, x: Tensor, view: View, cache: Any) -> Any:
        """Called before each attention with its input x (b, t, dim); returns what answers `rotate`
        and `scores` in it. `cache` holds what `keeps` says of the past, and is None outside of
        generation.
        """
        return self

    def keeps(self) -> tuple[int, int] | None:
        """Heads and channels of what its cache holds of each token, where it reads them; None where
        it needs nothing of the past.
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
        given = (cls.relative, cls.isometric, cls.learned, cls.channels, cls.bounded)
        return PositionTraits(cls.hooks(), *given)

    @classmethod
    def hooks(cls) -> tuple[str, ...]:
        """At which of the four places the scheme enters: the position itself, or for the last three
        its tables.
        """
        places = ("embed", "rotate", "bias", "scores")
        own = {place for place in places if getattr(cls, place) is not getattr(Position, place)}
        return tuple(
            place
            for place in places
            if place in own or getattr(cls.tables, place, still) is not still
        )


def still(tables: Any, x: Tensor, tokens: Tokens) -> Tensor:
    """The `rotate` and `rotate_key` of tables that turn nothing."""
    return x


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
