"""Random masks, drawn by a hash of positions and a seed."""

from torch import Tensor

from xformer_kit.mask import Sparse


class RandomMask(Sparse):
    """Base of random masks, which a hash of positions and a seed draws."""

    breaks = {"shift": "the draw of a place depends on its distance to the start of the text"}

    seed: int
    alike: bool

    def hash_of(self, number: Tensor, head: Tensor) -> Tensor:
        """Returns 32 hash bits of a number, and of the head if heads differ."""
        bits = hashed(number.long() + (self.seed * 0x9E3779B9 & 0xFFFFFFFF))
        return bits if self.alike else hashed(bits + head.long() * 0x85EBCA6B)

    @property
    def per_head(self):
        return not self.alike


def hashed(x: Tensor) -> Tensor:
    """Returns 32 pseudo-random bits of an integer: Wellons' "lowbias32" (2018), in the low half of
    64-bit integers.
    """
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)
