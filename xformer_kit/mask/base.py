"""Attention masks.

A mask is a predicate on a query token and a key token. It holds no tensors and no sequence length,
and is compared by content, so the same mask works in training, generation and cross attention.
Padding and documents are masked by the model, never by a mask.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from xformer_kit.registry import Context, Fault, Options, Registry
from xformer_kit.registry.traits import MaskTraits
from xformer_kit.tensors.tokens import Tokens

INF = math.inf
# how many slots to the left and to the right a query sees; INF is unbounded
Band = tuple[float, float]
# the reason of a fault; the law `nothing`, of rows that see no token, ignores this fault
HIDES_ALL = "hides every token of a text"


class Mask:
    """Base of all masks. Combine them with `&`, `|` and `~`."""

    def allows(self, query: Tokens, key: Tokens, head: Tensor) -> Tensor:
        """Returns True where the query sees the key. Fields are (b, 1, q, 1) and (b, 1, 1, k), head
        is (1, h, 1, 1).

        Uses element-wise torch operations only, without a Python branch on values, so that it also
        runs under vmap. The result broadcasts to (b, h, q, k).
        """
        raise NotImplementedError

    def band(self) -> Band | None:
        """Returns (left, right) if the mask is exactly the band -right <= query.slot - key.slot <=
        left; None otherwise.
        """
        return None

    @property
    def sees_future(self) -> bool:
        """Whether a query may see a key of a later slot that is not part of a prefix. True if
        unknown.
        """
        band = self.band()
        return band is None or band[1] > 0

    @property
    def sees_prefix(self) -> bool:
        """Whether a later key may be visible because it is part of a prefix (`Tokens.prefix`)."""
        return False

    @property
    def per_head(self) -> bool:
        """Whether the mask differs between heads."""
        return False

    def traits(self) -> MaskTraits:
        """The properties that other components may depend on."""
        return MaskTraits(self.band(), self.sees_future, self.sees_prefix)

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Faults of the mask with its attention: a combination of masks that hides all tokens."""
        length = context.seq_len or 1024
        heads = context.options["attn"].get("heads") or 1
        if options.of and MASKS.create(options.node).hides_all(length, heads):
            yield Fault(
                "",
                f"mask '{options.name}' {HIDES_ALL} of {length} from all",
                fix="Choose mask=causal or full.",
            )

    def hides_all(self, length: int, heads: int) -> bool:
        """Whether no token sees any token in a text of that length. False if it depends on a
        prefix.
        """
        if self.sees_prefix:
            return False
        slots, head = torch.arange(length)[None], torch.arange(heads).view(1, -1, 1, 1)
        keys = Tokens(slot=slots, position=slots).as_key()
        return not any(
            self.allows(Tokens(slot=chunk, position=chunk).as_query(), keys, head).any()
            for chunk in slots.split(64, 1)
        )

    def __and__(self, other: "Mask") -> "Mask":
        return MASKS["all_of"]((self, other))

    def __or__(self, other: "Mask") -> "Mask":
        return MASKS["any_of"]((self, other))

    def __invert__(self) -> "Mask":
        return MASKS["not"](self)


MASKS = Registry("mask", base=Mask)


def matrix(mask: Mask, length: int, heads: int = 1, prefix: int = 0) -> Tensor:
    """Returns the mask as a matrix: True where row (query) sees column (key); (length, length), or
    (heads, length, length) if heads differ. `prefix`: length of the prefix in tokens.
    """
    slot = torch.arange(length)[None]
    tokens = Tokens(slot=slot, position=slot, prefix=slot < prefix)
    seen = mask.allows(tokens.as_query(), tokens.as_key(), torch.arange(heads).view(1, -1, 1, 1))
    seen = seen.expand(1, heads if mask.per_head else 1, length, length)[0]
    return seen if mask.per_head else seen[0]
