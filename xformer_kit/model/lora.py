"""LoRA: low-rank adapters of linear maps (Hu et al., 2021, arXiv:2106.09685, section 4.1).

y = W x + b + (alpha / rank) B A dropout(x), with W and b frozen, A (rank, in) and B (out, rank).
B is 0 at the start, so that the model's outputs are those of its base. A linear map keeps the names
of its own parameters and gets lora_a and lora_b next to them. The maps of experts, with W (experts,
out, in), have one A and one B per expert.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.ffn.moe import ExpertLinear, expert_products
from xformer_kit.ffn.routes import Routes
from xformer_kit.model.initial_weights import generator
from xformer_kit.tensors import ParameterInfo, canonical, hidden, parameter_table

ADAPTERS = ("lora_a", "lora_b")
DEFAULT_MAPS = ("q", "v")  # as in section 4.2


class Adapter(nn.Module):
    """Base of linear maps with an adapter, which share the parameters of `base`. The saved
    parameter `weight` is W; the attribute `weight` is W + (alpha / rank) B A, for modules that read
    it and do not call the map.
    """

    lora_a: nn.Parameter
    lora_b: nn.Parameter

    def plain(self) -> nn.Module:
        """Returns a map of the same shape without an adapter, on the meta device."""
        raise NotImplementedError

    def merged(self) -> nn.Module:
        """Returns a map without an adapter, with the sum of the weights."""
        plain = self.plain()
        plain.weight = nn.Parameter(self.weight.detach())
        plain.bias = self.bias
        return plain.train(self.training)

    def __init__(self, base: Any, rank: int, alpha: float, dropout: float):
        nn.Module.__init__(self)
        self.register_parameter("weight", base.weight)
        self.register_parameter("bias", base.bias)
        *groups, out, into = base.weight.shape
        self.in_features = into
        self.out_features = out
        like: Any = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.lora_a = nn.Parameter(torch.empty(*groups, rank, into, **like))
        self.lora_b = nn.Parameter(torch.zeros(*groups, out, rank, **like))
        self.scale = alpha / rank
        self.dropout = dropout

    @property
    def weight(self) -> Tensor:
        """W + (alpha / rank) B A, of the shape of W."""
        return self._base_weight + self.scale * self.lora_b @ self.lora_a

    @property
    def _base_weight(self) -> Tensor:
        if (weight := self._parameters.get("weight")) is None:
            raise AttributeError("weight")
        return weight


class LoRALinear(Adapter, nn.Linear):  # type: ignore[override]
    """A linear map with an adapter."""

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        dropped = F.dropout(x, self.dropout, self.training)
        low = F.linear(F.linear(dropped, self.lora_a), self.lora_b)
        return F.linear(x, self._base_weight, self.bias) + self.scale * low

    def plain(self):
        return nn.Linear(self.in_features, self.out_features, self.bias is not None, "meta")


class LoRAExperts(Adapter, ExpertLinear):  # type: ignore[misc]
    """The linear maps of experts, with an adapter for each of them."""

    def forward(self, rows: Tensor, routes: Routes) -> Tensor:
        """(rows, in) -> (rows, out), sorted by expert."""
        dropped = F.dropout(rows, self.dropout, self.training)
        low = expert_products(dropped, self.lora_a, routes)
        low = self.scale * expert_products(low, self.lora_b, routes)
        return self._add_bias(expert_products(rows, self._base_weight, routes) + low, routes)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank {self.lora_a.shape[1]}"

    def plain(self):
        with torch.device("meta"):
            return ExpertLinear(1, 1, 1, self.bias is not None)


KINDS: dict[type[nn.Module], Any] = {nn.Linear: LoRALinear, ExpertLinear: LoRAExperts}


def linear_maps(model: nn.Module) -> Iterator[tuple[nn.Module, str, str]]:
    """Yields (parent, name, path) of each plain linear map of the stacks and the head, also those
    of experts.
    """
    for path, parent in model.named_modules():
        for name, module in parent.named_children():
            if path and type(module) in KINDS:
                yield parent, name, f"{path}.{name}"


def selects(word: str, path: str) -> bool:
    """Whether a word of lora.of selects the map at a path. A word is a pattern of the map's name,
    such as q or *, or, if it has a full stop, of the path, such as decoder.*.attn.q.
    """
    return fnmatchcase(path if "." in word else path.rpartition(".")[2], word)


def unreached_layers(paths: Collection[str], words: Collection[str]) -> list[str]:
    """The layers with linear maps none of which is selected, such as decoder.3."""
    reached: dict[str, bool] = {}
    for path in paths:
        stack, number, *_ = path.split(".")
        if number.isdigit():
            found = any(selects(word, path) for word in words)
            reached[f"{stack}.{number}"] = reached.get(f"{stack}.{number}", False) or found
    return [layer for layer, found in reached.items() if not found]


@torch.no_grad()
def add_adapters(model: nn.Module, lora: Mapping[str, Any], seed: int) -> None:
    """Replaces the linear maps that lora.of selects by ones with adapters, which are then the only
    trained parameters. A is drawn from U(-1 / sqrt(in), 1 / sqrt(in)).
    """
    model.requires_grad_(False)
    table = parameter_table(model)
    words = lora["of"] or DEFAULT_MAPS
    replaced: dict[int, Adapter] = {}
    for parent, name, path in list(linear_maps(model)):
        if not any(selects(word, path) for word in words):
            continue
        base: Any = getattr(parent, name)
        if id(base) not in replaced:
            rank, alpha = lora["rank"], lora["alpha"]
            kind = KINDS[type(base)]
            new = kind(base, rank, rank if alpha is None else alpha, lora["dropout"])
            if not new.lora_a.is_meta:
                bound = 1 / math.sqrt(new.lora_a.shape[-1])
                draw = torch.rand(new.lora_a.shape, generator=generator(seed, f"{path}.lora_a"))
                new.lora_a.copy_((2 * draw - 1) * bound)
            new.parameter_info = _adapter_info(table[canonical(f"{path}.weight")])
            replaced[id(base)] = new
        setattr(parent, name, replaced[id(base)])


def _adapter_info(weight: ParameterInfo) -> dict[str, ParameterInfo]:
    """The descriptions of A and B, from that of W."""
    if weight.axes is None:
        return {}
    *first, out, into = weight.axes
    return {"lora_a": hidden(*first, "rank", into), "lora_b": hidden(*first, out, "rank")}


@torch.no_grad()
def merge(model: nn.Module) -> nn.Module:
    """Replaces each linear map with an adapter by a plain one with the weight
    W + (alpha / rank) B A, and returns the model.
    """
    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, LoRALinear | LoRAExperts):
                setattr(parent, name, module.merged())
    return model


def adapter_paths(model: nn.Module) -> list[str]:
    """The paths of the linear maps with adapters."""
    return [path for path, module in model.named_modules() if isinstance(module, Adapter)]


def merged_state(
    state: Mapping[str, Tensor], paths: Collection[str], scale: float
) -> dict[str, Tensor]:
    """Returns a state_dict with the adapters of these maps added to the weights; scale: alpha /
    rank.
    """
    merged = dict(state)
    for path in paths:
        a, b = (merged.pop(f"{path}.{name}") for name in ADAPTERS)
        merged[f"{path}.weight"] = state[f"{path}.weight"] + scale * b @ a
    return merged
