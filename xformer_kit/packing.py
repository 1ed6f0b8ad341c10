"""How are several linear maps of one input run as one product, for as long as a text is generated?

A step of generation multiplies one row by each matrix: there the number of calls counts, and the order in which a
matrix lies in memory. Training keeps the matrices apart, each with its name and its start.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LARGEST = 256 * 2**20  # bytes of copies: beyond, reading the weights takes so long that the calls no longer matter


class Packed(NamedTuple):
    """Copies of the weights side by side, laid out (in, out), in which a product with one row reads them fastest."""

    weight: Tensor  # (in, the sum of sizes)
    bias: Tensor | None
    sizes: list[int]

    def __call__(self, x: Tensor) -> Sequence[Tensor]:
        """x (b, t, in) -> one (b, t, size) for each map."""
        if self.bias is None:
            return (x @ self.weight).split(self.sizes, -1)
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1).split(self.sizes, -1)


def pack(*maps: nn.Module) -> Packed | None:
    """The maps as one. None where they are more than plain linear maps: replaced, sharded, quantized, or watched by hooks."""
    linear = [m for m in maps if _plain(m) and isinstance(m, nn.Linear)]
    biases: list[Tensor] = [m.bias for m in linear if m.bias is not None]
    if len(linear) < len(maps) or len(biases) not in (0, len(maps)):
        return None
    weight = torch.cat([m.weight for m in linear]).t().contiguous()
    return Packed(weight, torch.cat(biases) if biases else None, [m.out_features for m in linear])


def _plain(module: nn.Module) -> bool:
    watched = module._forward_hooks or module._forward_pre_hooks
    return type(module) is nn.Linear and type(module.weight) is nn.Parameter and not watched


@contextmanager
def packed(model: nn.Module) -> Iterator[None]:
    """Every part that has maps to pack, `packs`, with them packed, and back.

    Nothing is packed where blocks are compiled, which fuse by themselves, and where the copies would be larger than LARGEST.
    """
    speaker: Any = getattr(model, "tower", model)  # an encoder is done once
    unused = {getattr(block, name) for block in getattr(speaker, "blocks", ()) for name in block.crosses}
    parts: list[Any] = [m for m in speaker.modules() if getattr(m, "packs", ()) and m not in unused]
    maps = [getattr(part, name) for part in parts for name in part.packs]
    weights = [m.weight for m in maps if hasattr(m, "weight")]
    small = sum(w.numel() * w.element_size() for w in weights) <= LARGEST
    compiled = any(module._compiled_call_impl is not None for module in model.modules())
    if not small or compiled:
        yield
        return
    try:
        for part in parts:
            part.packed = pack(*(getattr(part, name) for name in part.packs))
        yield
    finally:
        for part in parts:
            part.packed = None
