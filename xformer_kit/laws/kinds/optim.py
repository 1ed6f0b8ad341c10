"""Laws of optimizers."""

import io
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from xformer_kit.laws.kinds.registry import Component, law_of
from xformer_kit.laws.tiny_composition import build_tiny_model, randomise, tiny_config
from xformer_kit.laws.training import different
from xformer_kit.optim import create_optimizer, set_rate
from xformer_kit.tensors import parameter_table

SAME = 1e-6  # largest change of a parameter, relative to the largest, that is none
DECAY = 0.5  # a weight decay that shows
SIZES = 0.0, 1.0, 1e-20, 1e10, 0.0  # of the gradients of steps one after another


@law_of("optim", "groups")
def groups(component: Component) -> None:
    """Each trained parameter is in one group, and a frozen one in none. With twice the option `lr`,
    the rate of each group is twice as large, or the value of another option.

    Fails: decoder.0.attn.q.weight is in 0 groups.
    Fix: Pass `params` to the constructor of the base class, and the option `lr`.
    """
    model = tiny_model()
    next(model.parameters()).requires_grad_(False)
    optimizer = create_optimizer(component.node, model)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    for name, parameter in model.named_parameters():
        count = sum(p is parameter for p in held)
        if count != parameter.requires_grad:
            raise component.broken(f"{name} is in {count} groups")
    if "lr" not in component.node:
        return
    doubled = create_optimizer(component.with_options(lr=2 * component.node["lr"]).node, model)
    others = [value for option, value in component.node.items() if option != "lr"]
    for _, _, inner in component.registry.nested(component.node):
        others += inner.values()
    for one, two in zip(optimizer.param_groups, doubled.param_groups, strict=True):
        if two["lr"] != 2 * one["lr"] and one["lr"] not in others:
            raise component.broken(
                f"a group has the rate {one['lr']}, and {two['lr']} with twice the option lr"
            )


@law_of("optim", "rate")
def rate(component: Component) -> None:
    """A step uses the rate of its group, which the schedule sets before each step: with a rate of 0
    nothing changes, and with the rate of the config something does.

    Fails: a step with a rate of 0 changes decoder.0.attn.q.weight.
    Fix: Read the rate from `group["lr"]` in each step, not from an attribute.
    """
    model = tiny_model()
    optimizer = _without_decay(component, model)
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        set_rate(group, 0.0)
    if changed := _changed(model, _step(model, optimizer)):
        raise component.broken(f"a step with a rate of 0 changes {changed}")
    for group, lr in zip(optimizer.param_groups, rates, strict=True):
        set_rate(group, lr)
    if not _changed(model, _step(model, optimizer)):
        raise component.broken(f"a step with the rates {rates} changes nothing")


@law_of("optim", "decay")
def decay(component: Component) -> None:
    """Without a gradient only decay changes parameters: without decay nothing changes; with decay
    gains, biases and others that do not decay stay the same, and no parameter grows. The option
    `weight_decay` has an effect.

    Fails: decoder.norm.weight decays, although it is no matrix of weights.
    Fix: Read the decay from `group["weight_decay"]`, which is 0 for the groups of
        gains and biases.
    """
    model = tiny_model()
    if changed := _changed(model, _step(model, _without_decay(component, model), 0.0)):
        raise component.broken(f"a step without gradient and decay changes {changed}")
    with_decay, table = component.with_options(weight_decay=DECAY), parameter_table(model)
    before = _step(model, create_optimizer(with_decay.node, model), 0.0)
    for name, parameter in model.named_parameters():
        if not table[name].decays and not _same(parameter, before[name]):
            raise component.broken(f"{name} decays, although it is no matrix of weights")
        if parameter.norm() > before[name].norm() * (1 + SAME):
            raise component.broken(f"{name} grows in a step without gradient")
    if "weight_decay" in component.node:
        one, other = tiny_model(), tiny_model()
        pairs = (
            (one, _without_decay(component, one)),
            (
                other,
                create_optimizer(with_decay.node, other),
            ),
        )
        for model, optimizer in pairs:
            for seed in range(2):  # the first step of some only prepares the others
                _step(model, optimizer, seed=seed)
        if _difference(one, other) is None:
            raise component.broken("the option weight_decay has no effect")


@law_of("optim", "state")
def state(component: Component) -> None:
    """After two steps, saving, and loading into a new optimizer of a new model, the next step is
    the same bit for bit. `state_dict` loads with weights_only=True.

    Fails: after loading its state_dict, the next step of decoder.0.attn.q.weight differs.
    Fix: Keep what a step needs of earlier ones in `self.state[parameter]`, as tensors and
        numbers.
    """
    model, loaded = tiny_model(), tiny_model()
    optimizer, other = (create_optimizer(component.node, one) for one in (model, loaded))
    for seed in range(2):
        _step(model, optimizer, seed=seed)
    saved = io.BytesIO()
    torch.save(optimizer.state_dict(), saved)
    saved.seek(0)
    loaded.load_state_dict(model.state_dict())
    other.load_state_dict(torch.load(saved, weights_only=True))
    for one, of in ((model, optimizer), (loaded, other)):
        _step(one, of, seed=2)
    if name := _difference(model, loaded):
        raise component.broken(f"after loading its state_dict, the next step of {name} differs")


@law_of("optim", "finite")
def finite(component: Component) -> None:
    """Parameters stay finite in steps with gradients of 0, of usual size, tiny and huge.

    Fails: decoder.0.attn.q.weight is not finite after gradients of size 0.
    Fix: Add eps to a denominator, and scale before squares of gradients overflow.
    """
    model = tiny_model()
    optimizer = create_optimizer(component.node, model)
    for step, size in enumerate(SIZES):
        _step(model, optimizer, size, seed=step)
        for name, parameter in model.named_parameters():
            if not parameter.isfinite().all():
                raise component.broken(f"{name} is not finite after gradients of size {size:g}")


def tiny_model() -> nn.Module:
    """Returns a model with random parameters, also biases and gains, in fp32."""
    model = build_tiny_model(tiny_config(norm="layer", ffn={"name": "mlp", "bias": True}))
    randomise(model)
    return model


def _without_decay(component: Component, model: nn.Module) -> Optimizer:
    """Returns an optimizer whose groups have no weight decay."""
    optimizer: Optimizer = create_optimizer(component.with_options(weight_decay=0.0).node, model)
    for group in optimizer.param_groups:
        if "weight_decay" in group:
            group["weight_decay"] = 0.0
    return optimizer


def _difference(one: nn.Module, other: nn.Module) -> str | None:
    """Returns the name of a parameter that differs between two models; None if there is none."""
    return different(dict(one.named_parameters()), dict(other.named_parameters()))


def _step(
    model: nn.Module, optimizer: Optimizer, size: float = 1.0, seed: int = 0
) -> dict[str, Tensor]:
    """Takes a step with random gradients of this size. Returns the parameters before it."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = size * torch.randn(parameter.shape, generator=draw)
    step: Callable[[], object] = optimizer.step
    step()
    return before


def _changed(model: nn.Module, before: dict[str, Tensor]) -> str:
    """Returns the name of a parameter that is not the same as before; "" if there is none."""
    parameters = model.named_parameters()
    return next((name for name, p in parameters if not _same(p, before[name])), "")


def _same(parameter: Tensor, before: Tensor) -> bool:
    return bool((parameter - before).abs().max() <= SAME * before.abs().max())
