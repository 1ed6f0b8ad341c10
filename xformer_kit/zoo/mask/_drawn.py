"""Patterns that a hash of places and a seed draws."""

from torch import Tensor

from xformer_kit.mask import Sparse


class Drawn(Sparse):
    """Base of those that a hash of places and a seed draws."""

    breaks = {"shift": "the draw of a place depends on its distance to the start of the text"}

    seed: int
    alike: bool

    def drawn(self, number: Tensor, head: Tensor) -> Tensor:
        """32 bits of a place, and of the head where heads differ."""
        drawn = hashed(number.long() + (self.seed * 0x9E3779B9 & 0xFFFFFFFF))
        return drawn if self.alike else hashed(drawn + head.long() * 0x85EBCA6B)

    @property
    def per_head(self):
        return not self.alike


def hashed(x: Tensor) -> Tensor:
    """32 bits that look random, of an integer: Wellons' "lowbias32" (2018), in the low half of
    64-bit integers.
    """
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)
