"""Fused projections: several linear maps of one input, computed as one matrix product in
generation.

A step of generation multiplies a few rows by each matrix, so that the number of calls dominates its
time. On a CPU the memory layout of a matrix matters too, by up to a factor of 5 for 2 to 4 rows. In
training the matrices are separate parameters, with their own names and initial weights.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Largest size of copied weights in bytes. For larger ones, reading them takes most of the time.
MAX_COPY_BYTES = 256 * 2**20
# W x^T is faster than x W^T for at most FEW_ROWS rows, and for at most MANY_ROWS rows and
# NARROW_INPUTS input channels if there are more outputs than inputs.
FEW_ROWS = 4
MANY_ROWS = 64
NARROW_INPUTS = 512


class FusedProjections(NamedTuple):
    """x W^T + b with the concatenated weights of several maps, as whichever product is fastest for
    the number of rows.
    """

    weight: Tensor  # (sum of sizes, in)
    bias: Tensor | None
    sizes: list[int]  # output channels of each map
    may_transpose: bool  # whether (W x^T)^T may be computed instead: on a CPU with row-major W
    strided: bool = False  # whether the output may be column-major then, as for logits

    def __call__(self, x: Tensor) -> Sequence[Tensor]:
        """x (..., in) -> one tensor (..., size) per map."""
        out = (
            self.product(x)
            if self.may_transpose
            else F.linear(x, self.weight, self.bias)  # the usual case, with one call less
        )
        # `split` takes 3 calls more.
        return (out,) if len(self.sizes) == 1 else torch.split_with_sizes(out, self.sizes, -1)

    def product(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., sum of sizes)."""
        if not self.may_transpose:
            return F.linear(x, self.weight, self.bias)
        rows = x.numel() // x.shape[-1]
        if rows == 1 or not transposed_is_faster(rows, *self.weight.shape):
            return F.linear(x, self.weight, self.bias)
        y = torch.mm(self.weight, x.reshape(rows, -1).t()).t()
        if self.bias is not None:
            y = torch.add(y, self.bias, out=y.new_empty(y.shape))
        return (y if self.strided else y.contiguous()).view(*x.shape[:-1], -1)


def transposed_is_faster(rows: int, outputs: int, inputs: int) -> bool:
    """Whether W x^T is faster than x W^T: measured with torch's MKL, see `python -m
    benchmarks.products`.
    """
    return rows <= FEW_ROWS or (rows <= MANY_ROWS and outputs > inputs and inputs <= NARROW_INPUTS)


def fuse(*maps: nn.Module, rows: int = 1) -> FusedProjections | None:
    """The maps as one product, for generating `rows` texts. None unless all are plain linear maps:
    not replaced, sharded or quantized, and without hooks.
    """
    linear = [m for m in maps if is_plain(m) and isinstance(m, nn.Linear)]
    biases: list[Tensor] = [m.bias for m in linear if m.bias is not None]
    if len(linear) < len(maps) or len(biases) not in (0, len(maps)):
        return None
    weight = torch.cat([m.weight for m in linear]) if len(linear) > 1 else linear[0].weight
    bias = torch.cat(biases) if len(biases) > 1 else (biases or [None])[0]
    return fused_projection(weight, bias, [m.out_features for m in linear], rows)


def fused_projection(
    weight: Tensor, bias: Tensor | None, sizes: list[int], rows: int, strided: bool = False
) -> FusedProjections:
    """Returns the projection x W^T + b for `rows` rows of x, cut into outputs of `sizes` channels.

    For one row on a CPU, a weight with more outputs than inputs is stored column-major, which a
    matrix-vector product reads fastest. strided: for more rows, whether the output may be
    column-major, too.
    """
    if rows == 1 and weight.shape[0] > weight.shape[1] and weight.device.type == "cpu":
        return FusedProjections(weight.t().contiguous().t(), bias, sizes, may_transpose=False)
    return FusedProjections(weight, bias, sizes, weight.device.type == "cpu", strided)


def is_plain(module: nn.Module) -> bool:
    """Whether a module is a plain nn.Linear: not replaced, sharded or quantized, without hooks."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    return type(module) is nn.Linear and type(module.weight) is nn.Parameter and not hooked


@contextmanager
def with_fused_projections(model: Any, rows: int = 1) -> Iterator[None]:
    """Within this context the model runs with fused projections, for generating `rows` texts: a
    module with `fusible` runs those maps as one product, `fused_maps`; every other linear map of
    the output stack and the head run as the fastest product.

    Has no effect if blocks are compiled, and under autocast. Maps are not concatenated if their
    copies could exceed MAX_COPY_BYTES.
    """
    stack, head = model.stack, model.head  # not the encoder, which runs only once
    of_source = {getattr(block, name) for block in stack.blocks for name in block.cross_attentions}
    modules: list[Any] = [m for m in stack.modules() if m not in of_source]
    owners = [m for m in modules if getattr(m, "fusible", ())]
    fusible_maps = {getattr(owner, name) for owner in owners for name in owner.fusible}
    single_maps = [
        m
        for m in modules
        if m not in fusible_maps and is_plain(m) and m.weight.device.type == "cpu"
    ]
    weights = [m.weight for m in (*fusible_maps, *single_maps, head) if hasattr(m, "weight")]
    compiled = any(module._compiled_call_impl is not None for module in model.modules())
    if compiled or torch.is_autocast_enabled(head.weight.device.type):
        yield
        return
    if sum(w.numel() * w.element_size() for w in weights) > MAX_COPY_BYTES:
        owners, rows = [], max(rows, 2)  # only for one row a weight is copied
    try:
        head.fused_maps = head.fuse(rows)
        for owner in owners:
            owner.fused_maps = fuse(*(getattr(owner, n) for n in owner.fusible), rows=rows)
        for module in single_maps:
            projection = fuse(module, rows=rows)
            if rows > 1:
                module.forward = projection.product  # of this instance, not of its class
            else:
                module.forward = partial(F.linear, weight=projection.weight, bias=projection.bias)
        yield
    finally:
        for owner in (*owners, head):
            owner.fused_maps = None
        for module in single_maps:
            module.__dict__.pop("forward", None)
