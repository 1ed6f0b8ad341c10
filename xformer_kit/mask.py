"""Who may look at whom?

A mask answers one question for a pair of tokens: may the query see the key? It is a value: it owns no tensor, knows
no length, and is compared by content. One mask serves training, generation and cross attention. Padding and documents
are added by the model, never by a mask.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from xformer_kit.registry import Registry, at_least
from xformer_kit.tokens import Tokens

INF = math.inf
Band = tuple[float, float]  # how many slots to the left and to the right a query sees; INF is unbounded


class Mask:
    """Base of all masks. Combine them with `&`, `|` and `~`."""

    def allows(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        """True where the query sees the key. Point-wise: fields are (b, 1, q, 1) and (b, 1, 1, k), head is (1, h, 1, 1).

        Element-wise torch only, without a Python branch on values, so that it also runs under vmap.
        The result broadcasts to (b, h, q, k).
        """
        raise NotImplementedError

    def band(self) -> Band | None:
        """(left, right) where the mask is exactly the band -right <= query.slot - key.slot <= left; None otherwise."""
        return None

    @property
    def sees_future(self) -> bool:
        """Whether some query may see a key of a later slot that is not of a prefix. True where it is not known."""
        band = self.band()
        return band is None or band[1] > 0

    @property
    def sees_prefix(self) -> bool:
        """Whether a later key may be seen because it is of a prefix (`Tokens.prefix`)."""
        return False

    @property
    def per_head(self) -> bool:
        """Whether heads differ."""
        return False

    def __and__(self, other: "Mask") -> "Mask":
        return AllOf((self, other))

    def __or__(self, other: "Mask") -> "Mask":
        return AnyOf((self, other))

    def __invert__(self) -> "Mask":
        return Not(self)


MASKS = Registry("mask", base=Mask)


@MASKS.register("full", also_called=("bidirectional", "none", "dense"))
@dataclass(frozen=True)
class Full(Mask):
    """Every token sees every token (Vaswani et al., 2017, arXiv:1706.03762, section 3.2.3: the encoder)."""

    def allows(self, query, key, head):
        return key.slot == key.slot

    def band(self):
        return INF, INF


@MASKS.register("causal", also_called=("autoregressive", "triangular"))
@dataclass(frozen=True)
class Causal(Mask):
    """A token sees itself and what came before it (Vaswani et al., 2017, arXiv:1706.03762, section 3.2.3: the decoder)."""

    def allows(self, query, key, head):
        return key.slot <= query.slot

    def band(self):
        return INF, 0


@MASKS.register("sliding_window", also_called=("local", "window"))
@dataclass(frozen=True)
class SlidingWindow(Mask):
    """A token sees itself and the `window - 1` tokens before it (Beltagy et al., 2020, arXiv:2004.05150, section 3.1)."""

    window: int = 256  # tokens, the query's own included

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", window=1)

    def allows(self, query, key, head):
        distance = query.slot - key.slot
        return (distance >= 0) & (distance < self.window)

    def band(self):
        return self.window - 1, 0


@MASKS.register("prefix", also_called=("prefix_lm", "prefix_causal", "non_causal"))
@dataclass(frozen=True)
class Prefix(Mask):
    """A token sees itself, what came before it, and all of the prefix (Raffel et al., 2020, JMLR 21(140), figure 4).

    `Tokens.prefix` says which tokens that are; without any the mask is causal. A prompt is the prefix of what is generated.
    """

    def allows(self, query, key, head):
        before = key.slot <= query.slot
        return before if key.prefix is None else before | key.prefix

    @property
    def sees_future(self):
        return False

    @property
    def sees_prefix(self):
        return True


@MASKS.register("all_of", also_called=("and", "intersection"))
@dataclass(frozen=True)
class AllOf(Mask):
    """A token sees what every one of the masks lets it see."""

    of: tuple[Mask, ...]  # masks, such as [causal, sliding_window]

    @classmethod
    def check(cls, options, context):
        if not options.of:
            yield "of: must list at least one mask; got []."

    def allows(self, query, key, head):
        seen = self.of[0].allows(query, key, head)
        for mask in self.of[1:]:
            seen = seen & mask.allows(query, key, head)
        return seen

    def band(self):
        bands = [mask.band() for mask in self.of]
        if any(band is None for band in bands):
            return None
        return min(left for left, _ in bands), min(right for _, right in bands)

    @property
    def sees_future(self):
        return all(mask.sees_future for mask in self.of)

    @property
    def sees_prefix(self):
        later = all(mask.sees_prefix or mask.sees_future for mask in self.of)
        return later and any(mask.sees_prefix for mask in self.of)

    @property
    def per_head(self):
        return any(mask.per_head for mask in self.of)


@MASKS.register("any_of", also_called=("or", "union"))
@dataclass(frozen=True)
class AnyOf(Mask):
    """A token sees what at least one of the masks lets it see."""

    of: tuple[Mask, ...]  # masks, such as [causal, sliding_window]

    check = AllOf.check

    def allows(self, query, key, head):
        seen = self.of[0].allows(query, key, head)
        for mask in self.of[1:]:
            seen = seen | mask.allows(query, key, head)
        return seen

    def band(self):
        bands = [mask.band() for mask in self.of]
        if any(band is None for band in bands):
            return None
        left, right = max(left for left, _ in bands), max(right for _, right in bands)
        return (left, right) if (left, right) in bands else None  # else the union has corners of its own

    @property
    def sees_future(self):
        return any(mask.sees_future for mask in self.of)

    @property
    def sees_prefix(self):
        return any(mask.sees_prefix for mask in self.of)

    @property
    def per_head(self):
        return any(mask.per_head for mask in self.of)


@MASKS.register("not", also_called=("complement",))
@dataclass(frozen=True)
class Not(Mask):
    """A token sees what the mask hides from it. A token that then sees nothing attends to nothing: its output is zero."""

    of: Mask  # a mask, such as causal

    def allows(self, query, key, head):
        return ~self.of.allows(query, key, head)

    def band(self):
        return self.of.of.band() if isinstance(self.of, Not) else None

    @property
    def sees_future(self):
        if isinstance(self.of, Not):
            return self.of.of.sees_future
        band = self.of.band()
        return band is None or band[1] < INF

    @property
    def sees_prefix(self):
        return self.of.sees_prefix

    @property
    def per_head(self):
        return self.of.per_head


def matrix(mask: Mask, length: int, heads: int = 1) -> Tensor:
    """The mask as a picture: True where row (query) sees column (key); (length, length), or (heads, ...) where they differ."""
    tokens = Tokens(slot=torch.arange(length)[None])
    seen = mask.allows(tokens.as_query(), tokens.as_key(), torch.arange(heads).view(1, -1, 1, 1))
    seen = seen.expand(1, heads if mask.per_head else 1, length, length)[0]
    return seen if mask.per_head else seen[0]
