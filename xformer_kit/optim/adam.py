"""Optimizers: each a torch.optim.Optimizer over `parameter_groups(model, weight_decay)`."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from xformer_kit.registry import Context, Fault, Options, Registry, above, at_least
from xformer_kit.tensors import canonical, parameter_table


class OptimizerArguments:
    """What a run passes to the constructor of an optimizer."""

    model: nn.Module  # whose parameters it trains, in groups of `parameter_groups`
    # whether torch's fused step is used; None: if every parameter supports it
    fused: bool | None


OPTIMIZERS = Registry("optim", caller_arguments=OptimizerArguments, base=torch.optim.Optimizer)

FUSED = ("cpu", "cuda", "mps", "xpu")  # devices with torch's fused step


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Returns two groups for an optimizer: parameters that decay, and those that do not, by the
    table of parameters (xformer_kit/tensors/parameters.py).

    Unless a module states otherwise, parameters with two or more axes decay, also embeddings; gains
    and biases do not. A tied parameter occurs once, a frozen one not at all, and an empty group is
    omitted. The order is that of the model; "params" holds (name, parameter), so the optimizer
    keeps the names as "param_names".
    """
    table = parameter_table(model)
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    decays = {name: bool(table[canonical(name)].decays) for name, _ in trained}
    groups: list[dict[str, Any]] = [
        {
            "params": [(name, p) for name, p in trained if decays[name] is choice],
            "weight_decay": decay,
        }
        for choice, decay in ((True, weight_decay), (False, 0.0))
    ]
    return [group for group in groups if group["params"]]


@OPTIMIZERS.register("adamw", also_called=("adam_w", "torch.optim.AdamW"), similar=("adam",))
class AdamW(torch.optim.AdamW):
    """Adam with decoupled weight decay, which applies only to matrices.

    Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101, algorithm 2.

    `fused` is set by the caller: None selects torch's fused step if every parameter supports it,
    which on CPU is five times faster than the others; a loop that unscales fp16 gradients itself
    and clips them needs False.
    """

    def __init__(
        self,
        model: nn.Module,
        fused: bool | None = None,
        *,
        lr: float = 2e-3,  # peak learning rate; the schedule multiplies it
        weight_decay: float = 0.1,  # factor lr * weight_decay of a matrix is subtracted per step
        betas: tuple[float, float] = (0.9, 0.99),  # decay rates of the two moment estimates
        eps: float = 1e-8,  # added to the root of the mean square
    ):
        groups = parameter_groups(model, weight_decay)
        if fused is None:
            parameters = [p for group in groups for _, p in group["params"]]
            fused = all(p.is_floating_point() and p.device.type in FUSED for p in parameters)
        super().__init__(
            groups,
            lr=lr,
            betas=(betas[0], betas[1]),
            eps=eps,
            weight_decay=weight_decay,
            fused=fused,
        )

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        yield from above(options, "Try 1e-3.", lr=0)
        yield from above(options, "Try 1e-8.", eps=0)
        yield from at_least(options, weight_decay=0)
        for i, beta in enumerate(options.betas):
            if not 0 <= beta < 1:
                yield Fault(
                    f"betas[{i}]",
                    "must be at least 0 and below 1",
                    got=beta,
                    fix=f"Try {(0.9, 0.99)[i]}.",
                )
