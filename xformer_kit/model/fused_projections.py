"""How are linear maps run for as long as a text is generated?

A step of generation multiplies a few rows by each matrix. There the number of calls counts, so
several maps of one input run as one product; and on a CPU the order in which a product reads its
matrix counts, up to five times for 2 to 4 rows. Training keeps the matrices apart, each with its
name and its start.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LARGEST = (
    256 * 2**20
)  # bytes of copies: beyond, reading the weights takes so long that the calls no longer matter
FEW, SEVERAL, NARROW = 4, 64, 512  # rows, rows and channels up to which W x^T is the faster product


class FusedProjections(NamedTuple):
    """x W^T + b with the maps of W side by side, as the product that is fastest for the rows that
    come.
    """

    weight: Tensor  # (the sum of sizes, in)
    bias: Tensor | None
    sizes: list[int]
    turns: bool  # whether W x^T may be taken for x W^T: on a CPU, where W lies row by row
    # whether the output may lie column by column then, as logits may, which are read once
    strided: bool = False

    def __call__(self, x: Tensor) -> Sequence[Tensor]:
        """x (..., in) -> one (..., size) for each map."""
        out = self.product(x)
        return (out,) if len(self.sizes) == 1 else out.split(self.sizes, -1)

    def product(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., the sum of sizes)."""
        rows = x.numel() // x.shape[-1]
        if not self.turns or rows == 1 or not turned(rows, *self.weight.shape):
            return F.linear(x, self.weight, self.bias)
        y = torch.mm(self.weight, x.reshape(rows, -1).t()).t()
        if self.bias is not None:
            y = torch.add(y, self.bias, out=y.new_empty(y.shape))
        return (y if self.strided else y.contiguous()).view(*x.shape[:-1], -1)


def turned(rows: int, outputs: int, inputs: int) -> bool:
    """Whether W x^T is faster than x W^T: measured with torch's MKL, see `python -m
    benchmarks.products`.
    """
    return rows <= FEW or (rows <= SEVERAL and outputs > inputs and inputs <= NARROW)


def pack(*maps: nn.Module, rows: int = 1) -> FusedProjections | None:
    """The maps as one, for generation of `rows` texts. None where they are more than plain linear
    maps: replaced, sharded, quantized, or watched by hooks.
    """
    linear = [m for m in maps if is_plain(m) and isinstance(m, nn.Linear)]
    biases: list[Tensor] = [m.bias for m in linear if m.bias is not None]
    if len(linear) < len(maps) or len(biases) not in (0, len(maps)):
        return None
    weight = torch.cat([m.weight for m in linear]) if len(linear) > 1 else linear[0].weight
    bias = torch.cat(biases) if len(biases) > 1 else (biases or [None])[0]
    return laid(weight, bias, [m.out_features for m in linear], rows)


def laid(
    weight: Tensor, bias: Tensor | None, sizes: list[int], rows: int, strided: bool = False
) -> FusedProjections:
    """For one row, a matrix that widens lies column by column, which a product with one row reads
    fastest.
    """
    if rows == 1 and weight.shape[0] > weight.shape[1] and weight.device.type == "cpu":
        return FusedProjections(weight.t().contiguous().t(), bias, sizes, turns=False)
    return FusedProjections(weight, bias, sizes, weight.device.type == "cpu", strided)


def is_plain(module: nn.Module) -> bool:
    """Whether a linear map is no more than that: not replaced, sharded or quantized, nor watched by
    hooks.
    """
    watched = module._forward_hooks or module._forward_pre_hooks
    return type(module) is nn.Linear and type(module.weight) is nn.Parameter and not watched


@contextmanager
def packed(model: nn.Module, rows: int = 1) -> Iterator[None]:
    """A model that generates `rows` texts, and back: parts that have maps to pack, `packs`, with
    them packed; every other linear map of its own, and the head, as the fastest product.

    Nothing is done where blocks are compiled, which fuse by themselves, and under autocast; nothing
    is copied where the copies could be larger than LARGEST.
    """
    speaker: Any = getattr(model, "stack", model)  # an encoder is done once
    unused = {
        getattr(block, name) for block in getattr(speaker, "blocks", ()) for name in block.crosses
    }
    parts: list[Any] = [m for m in speaker.modules() if getattr(m, "packs", ()) and m not in unused]
    inside = {getattr(part, name) for part in parts for name in part.packs}
    alone: list[Any] = [
        m
        for m in speaker.modules()
        if m not in inside and is_plain(m) and m.weight.device.type == "cpu"
    ]
    head: Any = getattr(model, "head", None)
    weights = [m.weight for m in (*inside, *alone, head) if hasattr(m, "weight")]
    compiled = any(module._compiled_call_impl is not None for module in model.modules())
    if not weights or compiled or torch.is_autocast_enabled(weights[0].device.type):
        yield
        return
    small = sum(w.numel() * w.element_size() for w in weights) <= LARGEST
    owners = [*(parts if small else ()), *([] if head is None else [head])]
    rows = rows if small else max(rows, 2)  # of one row alone a copy is made
    try:
        for owner in owners:
            owner.packed = (
                owner.pack(rows)
                if owner is head
                else pack(*(getattr(owner, n) for n in owner.packs), rows=rows)
            )
        for module in alone:
            product = pack(module, rows=rows)
            if rows > 1 or not product.turns:
                module.forward = product.product  # past the class, for this module alone
        yield
    finally:
        for owner in owners:
            owner.packed = None
        for module in alone:
            module.__dict__.pop("forward", None)
