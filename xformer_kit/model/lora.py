"""LoRA: low-rank adapters of linear maps (Hu et al., 2021, arXiv:2106.09685, section 4.1).

y = W x + b + (alpha / rank) B A dropout(x), with W and b frozen, A (rank, in) and B (out, rank).
B is 0 at the start, so that the model's outputs are those of its base. A linear map keeps the names
of its own parameters and gets lora_a and lora_b next to them.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.model.initialise import generator

ADAPTERS = ("lora_a", "lora_b")
DEFAULT_MAPS = ("q", "v")  # as in section 4.2


class LoRALinear(nn.Linear):
    """A linear map with an adapter; it shares the parameters of `base`."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, dropout: float):
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        like: Any = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features, **like))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank, **like))
        self.scale = alpha / rank
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        dropped = F.dropout(x, self.dropout, self.training)
        low = F.linear(F.linear(dropped, self.lora_a), self.lora_b)
        return F.linear(x, self.weight, self.bias) + self.scale * low


def linear_maps(model: nn.Module) -> Iterator[tuple[nn.Module, str, str]]:
    """Yields (parent, name, path) of each plain linear map of the stacks."""
    for path, parent in model.named_modules():
        for name, module in parent.named_children():
            if path and type(module) is nn.Linear:
                yield parent, name, f"{path}.{name}"


@torch.no_grad()
def add_adapters(model: nn.Module, lora: Mapping[str, Any], seed: int) -> None:
    """Replaces the linear maps whose names are in lora.of by ones with adapters, which are then the
    only trained parameters. A is drawn from U(-1 / sqrt(in), 1 / sqrt(in)).
    """
    model.requires_grad_(False)
    replaced: dict[int, LoRALinear] = {}
    for parent, name, path in list(linear_maps(model)):
        if name not in (lora["of"] or DEFAULT_MAPS):
            continue
        base: Any = getattr(parent, name)
        if id(base) not in replaced:
            rank, alpha = lora["rank"], lora["alpha"]
            new = LoRALinear(base, rank, rank if alpha is None else alpha, lora["dropout"])
            if not new.lora_a.is_meta:
                bound = 1 / math.sqrt(new.in_features)
                draw = torch.rand(new.lora_a.shape, generator=generator(seed, f"{path}.lora_a"))
                new.lora_a.copy_((2 * draw - 1) * bound)
            replaced[id(base)] = new
        setattr(parent, name, replaced[id(base)])


@torch.no_grad()
def merge(model: nn.Module) -> nn.Module:
    """Replaces each linear map with an adapter by a plain one with the weight
    W + (alpha / rank) B A, and returns the model.
    """
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, LoRALinear):
                plain = nn.Linear(1, 1, bias=module.bias is not None, device="meta")
                plain.in_features, plain.out_features = module.in_features, module.out_features
                plain.weight = nn.Parameter(
                    module.weight + module.scale * module.lora_b @ module.lora_a
                )
                plain.bias = module.bias
                setattr(parent, name, plain.train(module.training))
    return model


def merged_state(state: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """Returns a state_dict with the adapters added to the weights; scale: alpha / rank."""
    merged = {n: t for n, t in state.items() if n.rpartition(".")[2] not in ADAPTERS}
    for name, b in state.items():
        path, _, key = name.rpartition(".")
        if key == "lora_b":
            merged[f"{path}.weight"] = state[f"{path}.weight"] + scale * b @ state[f"{path}.lora_a"]
    return merged
