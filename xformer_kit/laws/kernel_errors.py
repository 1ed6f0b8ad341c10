"""The errors of a kernel, next to those of `reference`."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

DRAWS = 1, 5, 20  # numbers of random texts and targets: more if fewer are not conclusive
ROUNDINGS = 64  # random roundings of the weights, if the draws are not conclusive
SMALLER = 3  # a seed of smaller weights
StepTensors = dict[str, Tensor]  # "logits", and the gradient of every parameter by its name
# kernel, dtype, draw, rounding, seed of the weights -> logits and gradients of a training step
ComputeStep = Callable[..., StepTensors]


class Bound(NamedTuple):
    """Bound of the error of a kernel: `factor` times the error of `reference`, plus `slack` times
    the largest exact value.
    """

    kernel: str
    dtype: torch.dtype
    factor: float
    slack: float


def errors_above_bound(steps: ComputeStep, bound: Bound) -> dict[str, str]:
    """Returns outputs and gradients whose error is above the bound, with the error. In bf16 both
    kernels round to three digits, at different operations.

    Gradients above the bound are computed again with smaller weights: with large ones a softmax has
    a single key, and the mean of its gradients, which fast kernels compute from their outputs (Dao
    et al., 2022, arXiv:2205.14135, appendix B.2), cancels against a term of its size; in
    `reference` it cancels exactly.
    """
    wrong = dict(_above_bound(steps, bound, steps("reference", torch.float64, 0)))
    if wrong and "logits" not in wrong:
        again = dict(_above_bound(partial(steps, weights=SMALLER), bound, wrong))
        wrong = {name: error for name, error in wrong.items() if name in again}
    return wrong


def _above_bound(
    steps: ComputeStep, bound: Bound, names: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yields the outputs and gradients whose error is above the bound, with the error. If a
    gradient is zero, as for a query that sees one key, and `reference` is exact, the largest exact
    value is that of the whole step: terms of its size cancel in other kernels.

    The error of one draw is random: that of a sum over all tokens, such as the gradient of a single
    number, may be almost zero, and that of an activation with a kink may be large if it rounds to
    the other side. If a kernel is above the bound, both kernels are compared on more texts and
    targets, by their largest errors. If it still is, the draw with the largest error may be next to
    a kink: then `reference` has an error as large with weights that are rounded differently.
    """
    largest = largest_gradient(steps("reference", torch.float64, 0))
    for name in _uncertain(steps, bound, list(names)):
        for draws in DRAWS:
            errors = [_errors(steps, bound, draw, name) for draw in range(draws)]
            error, reference, size = (max(values) for values in zip(*errors, strict=True))
            slack = bound.slack * (largest if reference == size == 0 else max(1e-3, size))
            if error <= bound.factor * reference + slack:
                break
        else:
            worst = max(range(draws), key=lambda draw: errors[draw][0])
            for rounding in range(1, ROUNDINGS + 1):
                rounded = bound._replace(kernel="reference")
                other, *_ = _errors(steps, rounded, worst, name, rounding)
                reference = max(reference, other if other < inf else 0)
                if error <= bound.factor * reference + slack:
                    break
            else:
                allowed = f"allowed is {bound.factor * reference + slack:.1e}"
                yield name, f"off by {error:.1e}, reference by {reference:.1e}, {allowed}"


def _uncertain(steps: ComputeStep, bound: Bound, names: list[str]) -> list[str]:
    """Returns the names without those whose error in the first draw is surely within the bound; one
    operation for all, since most are.
    """
    exact = steps("reference", torch.float64, 0)
    found = steps(bound.kernel, bound.dtype, 0)
    if any(name not in found for name in names):
        return names
    tensors = [exact[name] for name in names]
    gaps = torch._foreach_sub([found[name].double() for name in names], tensors)
    errors, sizes = (torch.stack(torch._foreach_norm(of, inf)).tolist() for of in (gaps, tensors))
    return [
        name
        for name, error, size in zip(names, errors, sizes, strict=True)
        if not error <= bound.slack * size
    ]


def _errors(
    steps: ComputeStep, bound: Bound, draw: int, name: str, rounding: int = 0
) -> tuple[float, float, float]:
    """Returns the errors of the kernel and of `reference`, and the largest exact value. NaN or a
    missing gradient is an infinite error of the kernel, and a negative one of `reference`.
    """
    exact = steps("reference", torch.float64, draw)[name]
    found = steps(bound.kernel, bound.dtype, draw, rounding), steps("reference", bound.dtype, draw)
    error, reference = (
        (step.get(name, exact * torch.nan).double() - exact).abs().max() for step in found
    )
    return (
        error.nan_to_num(inf, inf).item(),
        reference.nan_to_num(-inf, inf).item(),
        exact.abs().max().item(),
    )


def largest_gradient(step: StepTensors) -> float:
    sizes = (grad.abs().max().item() for name, grad in step.items() if name != "logits")
    return max(sizes, default=0.0)
