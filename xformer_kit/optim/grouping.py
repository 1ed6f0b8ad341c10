"""Options of every optimizer: groups of parameters with their own rate, decay or optimizer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from xformer_kit.registry import (
    Context,
    Fault,
    Node,
    OptionGroup,
    Options,
    Registry,
    above,
    at_least,
    in_open_range,
)
from xformer_kit.tensors import ParameterInfo
from xformer_kit.tensors.parameters import Role
from xformer_kit.tensors.parametrization import Growth


@dataclass(frozen=True)
class Grouping(OptionGroup):
    """Which parameters have a rate, a decay or an optimizer of their own."""

    # {name: {role or match, lr or lr_factor, weight_decay, optim}}
    groups: dict[str, Any] | None = None
    # factor on the rates of each layer per layer above it; embeddings are below the first
    layer_decay: float = 1.0

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Yields the faults of the options, of any optimizer."""
        yield from in_open_range(options, "1 is none.", closed=True, layer_decay=(0, 1))
        for name, node in (options.groups or {}).items():
            path = f"groups.{name}"
            if isinstance(node, Mapping):
                yield from PARAMETER_GROUPS.faults(group_node(node), path, context)
            else:
                fix = f"Try optim.groups.{name}={{role: embedding, lr: 1e-3}}."
                yield Fault(path, "must be a mapping", got=f"{node}", fix=fix)


class OptimizerArguments:
    """What a run passes to the constructor of an optimizer."""

    # groups {"params": [(name, parameter), ...]}, with weight_decay 0 for parameters that do not
    # decay, and what `optim.groups` sets
    params: list[dict[str, Any]]
    table: Mapping[str, ParameterInfo]  # the description of each of these parameters by its name
    # whether torch's fused step is used; None: if every parameter supports it
    fused: bool | None


class OptimizerAttributes(Protocol):
    """Optional members of an optimizer, in addition to those of torch.optim.Optimizer."""

    # Whether a rank can train its part of a parameter, a DTensor, with trainer.strategy=fsdp: yes,
    # unless it is False.
    trains_parts: bool

    @staticmethod
    def width_divisor(options: Node, shape: Sequence[int], growth: Growth) -> float:
        """Returns the number by which muP divides the rate of a hidden matrix of `shape` (..., out,
        in). `per_input` returns the factor by which it has more inputs, for steps whose numbers
        have one size, as in Adam. Without this method muP is refused.
        """

    def eval(self) -> None:
        """Sets the weights to averages that it keeps itself: before validation and in checkpoints.
        With it, an average by a callback is refused.
        """

    def train(self) -> None:
        """Sets the weights of the steps back."""


OPTIMIZERS = Registry(
    "optim", caller_arguments=OptimizerArguments, base=torch.optim.Optimizer, common=Grouping
)
PARAMETER_GROUPS = Registry("parameter group")


@PARAMETER_GROUPS.register("parameters")
@dataclass(frozen=True)
class ParameterGroup:
    """Parameters by their role, or by patterns of their names, and what is different for them."""

    role: Role | None = None  # see `xformer describe --parameters`
    match: str | list[str] | None = None  # patterns of names, or of modules: head, decoder.*.ffn
    lr: float | None = None  # peak learning rate; null is that of the optimizer
    lr_factor: float | None = None  # factor on the optimizer's rate
    weight_decay: float | None = None  # of those that decay; null is that of the optimizer
    optim: Callable[..., torch.optim.Optimizer] | None = None  # another optimizer

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        if (options.role is None) == (options.match is None):
            rule = "must say which parameters, either by role or by match"
            yield Fault("", rule, fix="Try role: embedding, or match: decoder.*.attn.")
        if options.lr is not None and options.lr_factor is not None:
            yield Fault("lr_factor", "is the rate too, and lr is set", fix="Leave one out.")
        yield from above(options, "Leave it out for no other rate.", lr=0, lr_factor=0)
        yield from at_least(options, weight_decay=0)
        if isinstance(options.optim, Mapping):
            yield from _own_optimizer(options)

    @property
    def patterns(self) -> list[str]:
        """The patterns of `match`."""
        return [self.match] if isinstance(self.match, str) else self.match or []


def group_node(group: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the node of a group of the config, whose optimizer may be a bare name."""
    optim = OPTIMIZERS.as_node(group.get("optim"))
    return {**group, "name": "parameters", **({} if optim is None else {"optim": optim})}


def _own_optimizer(options: Options) -> Iterator[Fault]:
    for key in ("groups", "layer_decay"):
        if options.optim.get(key) not in (None, 1.0):
            yield Fault(f"optim.{key}", "is set for all groups together", fix=f"Set optim.{key}.")
    for key in ("lr", "weight_decay"):
        if getattr(options, key) is not None:
            fix = f"Set it in {{optim: {{{key}: ...}}}}."
            yield Fault(key, "is that of the group's own optimizer", fix=fix)
