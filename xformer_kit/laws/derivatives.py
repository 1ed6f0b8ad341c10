"""Law of derivatives: gradients are those of the loss."""

from collections.abc import Mapping

import torch
from torch import Tensor

from xformer_kit.laws.random_numbers import seeded
from xformer_kit.laws.registry import law
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.laws.training import loss_of
from xformer_kit.model.model import Model

# Of the smallest changes, those of a parameter with the largest gradient: of all parameters, and of
# one, for which a kink or another choice of experts is less likely to be crossed.
STEP, STEP_OF_ONE = 1e-7, 1e-9
SMALLEST = 1e-3  # gradients below this share of the largest one change by as much as at this share
# Allowed differences, as a share of what one parameter adds to the slope.
ALLOWED, ALLOWED_OF_ONE = 1e-3, 0.03
SHOWN = 4  # parameters with wrong gradients, in a message


@law("derivative")
def derivative(composition: Composition) -> None:
    """The gradient g of each parameter is that of the loss in training: the slope of the loss in a
    random direction d, (loss(p + h d) - loss(p - h d)) / 2h, is g . d.

    All parameters change at once, each so much that it adds as much to the slope as the others. If
    the sum differs, each changes by itself.

    Fails: the gradients of decoder.1.placement.ffn.norm.0.weight, decoder.1.ffn.up.weight are not
        those of the loss: in a random direction that of decoder.1.placement.ffn.norm.0.weight is
        2.13e-02, and the slope of the loss is 1.06e-02.
    Fix: Correct the `backward` of an own torch.autograd.Function, or remove a `detach` or a
        `no_grad`. State a gradient that is no derivative, such as a straight-through estimator's,
        in `breaks`.
    """
    model = composition.trainable_model().train()
    model.zero_grad()
    _loss(composition, model).backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    largest = max(grad.norm().item() for grad in grads.values())
    draw, directions = torch.Generator().manual_seed(5), {}
    for name, grad in grads.items():
        size = largest / max(grad.norm().item(), SMALLEST * largest)
        directions[name] = size * torch.randn(grad.shape, generator=draw, dtype=grad.dtype)
    for step in (STEP, STEP_OF_ONE):
        if min(_gaps(composition, model, grads, directions, step)) <= ALLOWED * largest:
            return
    wrong = [
        name
        for name in reversed(grads)
        if min(_gaps(composition, model, grads, {name: directions[name]}, STEP_OF_ONE))
        > ALLOWED_OF_ONE * largest
    ]
    if not wrong:
        return
    last = wrong[0]
    # A fault makes all gradients before it wrong. Names are in the order of modules, not of calls.
    near = [name for name in wrong if name.split(".")[:2] == last.split(".")[:2]][:SHOWN]
    found = _derivative(grads, {last: directions[last]})
    slope = _slopes(composition, model, {last: directions[last]}, STEP_OF_ONE)[0]
    raise composition.broken(
        f"the gradients of {', '.join(near)} are not those of the loss: in a random direction that"
        f" of {last} is {found:.2e}, and the slope of the loss is {slope:.2e}"
    )


def _derivative(grads: Mapping[str, Tensor], directions: Mapping[str, Tensor]) -> float:
    return sum((grads[name] * direction).sum().item() for name, direction in directions.items())


def _gaps(
    composition: Composition,
    model: Model,
    grads: Mapping[str, Tensor],
    directions: Mapping[str, Tensor],
    step: float,
) -> list[float]:
    """Returns how far the slopes are from what the gradients state."""
    found = _derivative(grads, directions)
    return [abs(found - slope) for slope in _slopes(composition, model, directions, step)]


@torch.no_grad()
def _slopes(
    composition: Composition, model: Model, directions: Mapping[str, Tensor], step: float
) -> tuple[float, float, float]:
    """Returns the slope between the points on both sides, and those from the parameters to each of
    them; restores the parameters.
    """
    before = {name: model.get_parameter(name).clone() for name in directions}
    losses = []
    for sign in (1, -1, 0):
        for name, direction in directions.items():
            model.get_parameter(name).copy_(before[name] + sign * step * direction)
        losses.append(_loss(composition, model).item())
    above, below, here = losses
    return (above - below) / (2 * step), (above - here) / step, (here - below) / step


def _loss(composition: Composition, model: Model) -> Tensor:
    with seeded(0):
        return loss_of(model, composition.ids, composition.source)[0]
