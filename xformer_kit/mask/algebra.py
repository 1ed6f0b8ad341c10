"""Combinations of masks: `&`, `|`, `~`, and one mask per group of heads."""

from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

import torch

from xformer_kit.mask.base import INF, MASKS, Mask
from xformer_kit.registry import Fault, not_empty


@dataclass(frozen=True)
class CompositeMask(Mask):
    """Base of masks that combine several masks."""

    of: tuple[Mask, ...]  # masks, such as [causal, sliding_window]

    @classmethod
    def check(cls, options, context):
        yield from not_empty(options, of="Try [causal, sliding_window].")

    @property
    def sees_future(self):
        return any(mask.sees_future for mask in self.of)

    @property
    def sees_prefix(self):
        return any(mask.sees_prefix for mask in self.of)

    @property
    def per_head(self):
        return any(mask.per_head for mask in self.of)


@MASKS.register("all_of", also_called=("and", "intersection"))
@dataclass(frozen=True)
class AllOf(CompositeMask):
    """Each token attends to the tokens that all of the masks show."""

    def allows(self, query, key, head):
        return reduce(and_, [mask.allows(query, key, head) for mask in self.of])

    def band(self):
        bands = [mask.band() for mask in self.of]
        return None if None in bands else tuple(min(sides) for sides in zip(*bands, strict=True))

    @property
    def sees_future(self):
        return all(mask.sees_future for mask in self.of)

    @property
    def sees_prefix(self):
        later = all(mask.sees_prefix or mask.sees_future for mask in self.of)
        return later and any(mask.sees_prefix for mask in self.of)


@MASKS.register("any_of", also_called=("or", "union"))
@dataclass(frozen=True)
class AnyOf(CompositeMask):
    """Each token attends to the tokens that at least one of the masks shows."""

    def allows(self, query, key, head):
        return reduce(or_, [mask.allows(query, key, head) for mask in self.of])

    def band(self):
        bands = [mask.band() for mask in self.of]
        if None in bands:
            return None
        widest = tuple(max(sides) for sides in zip(*bands, strict=True))
        return widest if widest in bands else None  # else the union is not a band


@MASKS.register("per_head", also_called=("heads", "mixed_heads"))
@dataclass(frozen=True)
class PerHead(CompositeMask):
    """Each group of heads has its own mask: the first `groups[0]` heads the first mask, and so on;
    or head i has mask i modulo the number of masks (Child et al., 2019, arXiv:1904.10509, section
    5.1, eq. 8).
    """

    groups: tuple[int, ...] | None = None  # heads of each mask, in order; null: masks alternate

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        groups, count = options.groups, len(options.of)
        if groups is not None and (len(groups) != count or min(groups, default=1) < 1):
            rule = f"must have a number of at least 1 for each of the {count} masks"
            yield Fault("groups", rule, got=list(groups))

    @classmethod
    def cannot(cls, options, context):
        heads = context.attn.heads
        if options.groups is None and len(options.of) > heads:
            yield Fault(
                "of",
                f"has {len(options.of)} masks, and attn '{context.names['attn']}'"
                f" {heads} heads here; a mask needs a head",
                fix="Give fewer masks, or an attention with more heads.",
            )
        elif options.groups is not None and sum(options.groups) != heads:
            yield Fault(
                "groups",
                f"must add up to the {heads} heads of attn '{context.names['attn']}'",
                got=f"{list(options.groups)}, {sum(options.groups)} together",
                fix="null lets heads take turns.",
            )
        else:
            yield from super().cannot(options, context)

    def allows(self, query, key, head):
        seen = self.of[0].allows(query, key, head)
        for i, mask in enumerate(self.of[1:], 1):
            if self.groups is None:
                own_heads = head % len(self.of) == i
            else:
                own_heads = head >= sum(self.groups[:i])
            seen = torch.where(own_heads, mask.allows(query, key, head), seen)
        return seen

    def band(self):
        bands = {mask.band() for mask in self.of}
        return bands.pop() if len(bands) == 1 else None

    @property
    def per_head(self):
        return len(set(self.of)) > 1 or self.of[0].per_head


@MASKS.register("not", also_called=("complement",))
@dataclass(frozen=True)
class Not(Mask):
    """Each token attends to the tokens that the mask hides. A token that sees no token has the
    output zero.
    """

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
