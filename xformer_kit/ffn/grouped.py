"""Grouped matrix products: each group of rows is multiplied by its own matrix.

Rows are sorted by group, and `counts` holds the number of rows of each group. The functions are
registered as torch operators, so they compile without graph breaks and work on the meta device and
in FLOP counters, although the number of rows of a group is known only at run time.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import flop_registry, register_flop_formula


class Groups(NamedTuple):
    """The sizes of consecutive groups of rows."""

    counts: Tensor  # (groups,): rows of each group
    ends: Tensor  # (groups,), int32: the row after the last one of each group

    @classmethod
    def of(cls, counts: Tensor) -> "Groups":
        return cls(counts, counts.cumsum(0, dtype=torch.int32))


def grouped_linear(x: Tensor, weight: Tensor, groups: Groups) -> Tensor:
    """x (rows, in), weight (groups, out, in) -> (rows, out): the rows of group g times weight[g]^T.

    Uses torch's operation if it supports the tensors, otherwise `grouped_product`.
    """
    # is_compiling comes first: _torch_supports reads an address, which breaks the graph
    if (
        not torch.compiler.is_compiling()
        and len(x) > 1
        and _torch_supports(x)
        and _torch_supports(weight)
    ):
        # In compiled code cumsum returns int64.
        out = F.grouped_mm(x, weight.transpose(1, 2), offs=groups.ends.to(torch.int32))
        if out.requires_grad:  # it does not support expanded gradients, for example of a sum
            out.register_hook(Tensor.contiguous)
        return out
    return grouped_product(x, weight, groups.counts)


def _torch_supports(t: Tensor) -> bool:
    """Whether torch's grouped product supports the tensor: not in float64, and rows must start at
    multiples of 16 bytes, forward and backward.
    """
    return (
        type(t) in (Tensor, nn.Parameter)
        and not t.is_meta
        and t.dtype != torch.float64
        and hasattr(F, "grouped_mm")
        and t.is_contiguous()
        and all(size * t.element_size() % 16 == 0 for size in t.shape[-2 if t.ndim == 3 else -1 :])
        and t.data_ptr() % 16 == 0
    )


@torch.library.custom_op("xformer_kit::grouped_product", mutates_args=())
def grouped_product(x: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    """`grouped_linear` with counts (groups,)."""
    out = x.new_empty(x.shape[0], weight.shape[1])
    start = 0
    for group, n in enumerate(counts.tolist()):
        if n:
            torch.mm(x[start : start + n], weight[group].t(), out=out[start : start + n])
        start += n
    return out


@torch.library.custom_op("xformer_kit::grouped_outer", mutates_args=())
def grouped_outer(y: Tensor, x: Tensor, counts: Tensor) -> Tensor:
    """y (rows, out), x (rows, in), counts (groups,) -> (groups, out, in): y^T x over the rows of
    each group, 0 where it has none.
    """
    out = x.new_empty(counts.shape[0], y.shape[1], x.shape[1])
    start = 0
    for group, n in enumerate(counts.tolist()):
        if n:
            torch.mm(y[start : start + n].t(), x[start : start + n], out=out[group])
        else:
            out[group].zero_()
        start += n
    return out


@grouped_product.register_fake
def _(x: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


@grouped_outer.register_fake
def _(y: Tensor, x: Tensor, counts: Tensor) -> Tensor:
    return x.new_empty(counts.shape[0], y.shape[1], x.shape[1])


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _product_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, counts = ctx.saved_tensors
    x_needs_grad, weight_needs_grad, _ = ctx.needs_input_grad
    grad = grad.contiguous()
    return (
        grouped_product(grad, weight.transpose(1, 2), counts) if x_needs_grad else None,
        grouped_outer(grad, x, counts) if weight_needs_grad else None,
        None,
    )


def _outer_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    y, x, counts = ctx.saved_tensors
    return grouped_product(x, grad, counts), grouped_product(y, grad.transpose(1, 2), counts), None


grouped_product.register_autograd(_product_backward, setup_context=_save_inputs)
grouped_outer.register_autograd(_outer_backward, setup_context=_save_inputs)


@register_flop_formula(torch.ops.xformer_kit.grouped_product)
def _product_flops(x: Any, weight: Any, counts: Any, **_: Any) -> int:
    return 2 * x[0] * weight[1] * weight[2]


@register_flop_formula(torch.ops.xformer_kit.grouped_outer)
def _outer_flops(y: Any, x: Any, counts: Any, **_: Any) -> int:
    return 2 * x[0] * x[1] * y[1]


def _grouped_mm_flops(a: Any, b: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    """Of torch's operation: (rows, in) and (groups, in, out), or (out, rows) and (rows, in)."""
    return 2 * a[0] * a[1] * b[-1]


if hasattr(torch.ops.aten, "_grouped_mm") and torch.ops.aten._grouped_mm not in flop_registry:
    register_flop_formula(torch.ops.aten._grouped_mm)(_grouped_mm_flops)
