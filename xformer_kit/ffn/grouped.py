"""How are rows sent through several matrices, each row through one? One product for each group of
rows.

Rows lie sorted by group, and `counts` says how many each has. As operations of torch's own registry
these compile whole, have shapes without values (torch's meta device) and FLOPs, although how many
rows a group has is known only when they run.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import flop_registry, register_flop_formula


class Groups(NamedTuple):
    """How rows are sorted."""

    counts: Tensor  # (groups,): rows of each
    ends: Tensor  # (groups,), int32: where each ends

    @classmethod
    def of(cls, counts: Tensor) -> "Groups":
        return cls(counts, counts.cumsum(0, dtype=torch.int32))


def grouped(x: Tensor, weight: Tensor, groups: Groups) -> Tensor:
    """x (rows, in), weight (groups, out, in) -> (rows, out): the rows of group g times weight[g]^T.

    Torch's own operation where it takes them, else that of this file.
    """
    # first of all, for an address, which _fits reads, breaks the graph
    if not torch.compiler.is_compiling() and len(x) > 1 and _fits(x) and _fits(weight):
        out = F.grouped_mm(
            x, weight.transpose(1, 2), offs=groups.ends.to(torch.int32)
        )  # compiled, a sum comes out as int64
        if out.requires_grad:
            out.register_hook(
                Tensor.contiguous
            )  # it takes no gradient that was expanded, of a sum for example
        return out
    return grouped_product(x, weight, groups.counts)


def _fits(t: Tensor) -> bool:
    """Torch's product of groups is not in float64, and its rows begin at multiples of 16 bytes,
    forward and backward.
    """
    plain = (
        type(t) in (Tensor, nn.Parameter)
        and not t.is_meta
        and t.dtype != torch.float64
        and hasattr(F, "grouped_mm")
    )
    return (
        plain
        and t.is_contiguous()
        and all(size * t.element_size() % 16 == 0 for size in t.shape[-2 if t.ndim == 3 else -1 :])
        and t.data_ptr() % 16 == 0
    )


@torch.library.custom_op("xformer_kit::grouped_product", mutates_args=())
def grouped_product(x: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    """The same, with counts (groups,)."""
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


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _product_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, counts = ctx.saved_tensors
    of_x, of_weight, _ = ctx.needs_input_grad
    grad = grad.contiguous()
    return (
        grouped_product(grad, weight.transpose(1, 2), counts) if of_x else None,
        grouped_outer(grad, x, counts) if of_weight else None,
        None,
    )


def _outer_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    y, x, counts = ctx.saved_tensors
    return grouped_product(x, grad, counts), grouped_product(y, grad.transpose(1, 2), counts), None


grouped_product.register_autograd(_product_backward, setup_context=_keep)
grouped_outer.register_autograd(_outer_backward, setup_context=_keep)


@register_flop_formula(torch.ops.xformer_kit.grouped_product)
def _product_flops(x: Any, weight: Any, counts: Any, **_: Any) -> int:
    return 2 * x[0] * weight[1] * weight[2]


@register_flop_formula(torch.ops.xformer_kit.grouped_outer)
def _outer_flops(y: Any, x: Any, counts: Any, **_: Any) -> int:
    return 2 * x[0] * x[1] * y[1]


def _torchs_flops(a: Any, b: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    """Of torch's own: (rows, in) and (groups, in, out), or (out, rows) and (rows, in)."""
    return 2 * a[0] * a[1] * b[-1]


if hasattr(torch.ops.aten, "_grouped_mm") and torch.ops.aten._grouped_mm not in flop_registry:
    register_flop_formula(torch.ops.aten._grouped_mm)(_torchs_flops)
