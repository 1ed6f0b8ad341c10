"""The optimizer of a config: groups of the parameters of a model, and one optimizer over them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from xformer_kit.optim.combined import Combined
from xformer_kit.optim.freezing import matches
from xformer_kit.optim.grouping import OPTIMIZERS, PARAMETER_GROUPS, ParameterGroup, group_node
from xformer_kit.registry import ConfigError, Fault, Faults, Node
from xformer_kit.tensors import ParameterInfo, canonical, parameter_table
from xformer_kit.tensors.parameter_places import Place, parameter_places
from xformer_kit.tensors.parametrization import Growth, growths

Named = tuple[str, nn.Parameter]
BASE = ""  # the group of parameters that no group of the config has


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Returns two groups for an optimizer: parameters that decay, and those that do not, by the
    table of parameters (xformer_kit/tensors/parameters.py).

    Unless a module states otherwise, parameters with two or more axes decay, also embeddings; gains
    and biases do not. A tied parameter occurs once, a frozen one not at all, and an empty group is
    omitted. The order is that of the model; "params" holds (name, parameter), so the optimizer
    keeps the names as "param_names".
    """
    groups = _by_decay(_trained(model), parameter_table(model))
    return [{"weight_decay": weight_decay, **group} for group in groups]


def create_optimizer(
    node: Node, model: nn.Module, fused: bool | None = None
) -> torch.optim.Optimizer:
    """Returns the optimizer of the config `optim` for the trained parameters of a model.

    Each of its groups has a "group", its key in optim.groups or "". Raises ConfigError for groups
    that do not fit the model. fused: see OptimizerArguments.
    """
    node = OPTIMIZERS.complete(node)
    table, trained = parameter_table(model), _trained(model)
    if faults := list(grouping_faults(node, table, trained)):
        raise ConfigError(fault.at("optim") for fault in faults)
    given = {"table": table, "fused": fused}
    factors, found_growths = _layer_factors(model, node["layer_decay"]), growths(model)
    chosen = _chosen(node)
    params, others = [], []
    for name, members in _members(chosen, table, trained).items():
        group = chosen.get(name, ParameterGroup())
        divisors = _rate_divisors(_optimizer_of(node, name), found_growths)
        splits = _with_rates(_by_decay(members, table), group, factors, divisors)
        found = [{**split, "group": name} for split in splits]
        if group.optim is None:
            params += found
        elif found:
            others.append(group.optim(params=found, **given))
    own = [OPTIMIZERS.create(node, params=params, **given)] if params else []
    optimizer: torch.optim.Optimizer = Combined([*own, *others]) if others else own[0]
    for one in optimizer.param_groups:
        if (factor := one.pop("lr_factor", 1.0)) != 1.0:
            one["lr"] *= factor
        if (factor := one.pop("decay_factor", 1.0)) != 1.0:
            one["weight_decay"] *= factor
    return optimizer


def rates(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Returns the rate of the groups as `lr`, and as `lr/NAME` of those with a name; the largest of
    those of one name.
    """
    found: dict[str, float] = {}
    for group in optimizer.param_groups:
        key = f"lr/{group['group']}" if group.get("group") else "lr"
        found[key] = max(found.get(key, 0.0), float(group["lr"]))
    return {"lr": max(found.values()), **found}


def averages_weights(node: Node) -> bool:
    """Whether an optimizer averages the weights itself: it has the methods `eval` and `train`."""
    return hasattr(OPTIMIZERS[node["name"]], "eval")


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Sets the rate of a group; in place if it is a tensor, for optimizers that compile a step."""
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def grouping_faults(
    node: Node, table: Mapping[str, ParameterInfo], trained: Iterable[Named]
) -> Faults:
    """Yields the faults of optim.groups for the parameters of a model: groups that match nothing,
    or that overlap.
    """
    names = [canonical(name) for name, _ in trained]
    holders: dict[str, str] = {}
    for key, group in _chosen(node).items():
        found = [name for name in names if _in_group(group, name, table)]
        if not found:
            fix = "xformer describe --parameters lists names and roles."
            if group.role == "head":
                fix = "Use role: embedding if the head's matrix is the embedding (tie_embeddings)."
            yield Fault(f"groups.{key}", "matches no trained parameter of the model", fix=fix)
        for name in found:
            if (other := holders.setdefault(name, key)) != key:
                fix = "A parameter is in one group: choose other patterns."
                yield Fault(f"groups.{key}", f"has {name}, which groups.{other} has too", fix=fix)
                break


def _chosen(node: Node) -> dict[str, ParameterGroup]:
    return {
        key: PARAMETER_GROUPS.create(group_node(group))
        for key, group in (node.get("groups") or {}).items()
    }


def _in_group(group: ParameterGroup, name: str, table: Mapping[str, ParameterInfo]) -> bool:
    if group.role is not None:
        return table[name].role == group.role
    return matches(name, group.patterns)


def _members(
    chosen: Mapping[str, ParameterGroup],
    table: Mapping[str, ParameterInfo],
    trained: Iterable[Named],
) -> dict[str, list[Named]]:
    """The parameters of each group, in the order of the model; those of no group first."""
    found: dict[str, list[Named]] = {BASE: [], **{key: [] for key in chosen}}
    for name, parameter in trained:
        holds = (key for key, group in chosen.items() if _in_group(group, canonical(name), table))
        found[next(holds, BASE)].append((name, parameter))
    return found


def _trained(model: nn.Module) -> list[Named]:
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


def _by_decay(members: Iterable[Named], table: Mapping[str, ParameterInfo]) -> list[dict[str, Any]]:
    """Two groups: parameters that decay, and those that do not, with weight_decay 0."""
    decaying: dict[str, Any] = {"params": []}
    others: dict[str, Any] = {"params": [], "weight_decay": 0.0}
    for name, parameter in members:
        group = decaying if table[canonical(name)].decays else others
        group["params"].append((name, parameter))
    return [group for group in (decaying, others) if group["params"]]


def _optimizer_of(node: Node, key: str) -> Node:
    """The node of the optimizer of a group of the config."""
    own = group_node((node["groups"] or {}).get(key, {})).get("optim")
    return OPTIMIZERS.complete(own) if own else node


def _rate_divisors(
    optim: Node, found: Mapping[nn.Parameter, Growth]
) -> Mapping[nn.Parameter, float]:
    """The numbers by which muP divides rates, of parameters that grow with the width."""
    divisor = getattr(OPTIMIZERS[optim["name"]], "width_divisor", None)
    if divisor is None:
        return {}
    return {p: divisor(optim, p.shape, each) for p, each in found.items() if each != Growth()}


def has_width_rule(name: str) -> bool:
    """Whether muP has a rule for the rates of an optimizer, see OptimizerAttributes."""
    return hasattr(OPTIMIZERS[name], "width_divisor")


def _with_rates(
    groups: Iterable[dict[str, Any]],
    group: ParameterGroup,
    factors: Mapping[nn.Parameter, float],
    divisors: Mapping[nn.Parameter, float],
) -> Iterator[dict[str, Any]]:
    """The groups with the rate and the decay of a group of the config, one for each pair of
    `lr_factor` and `decay_factor`, which wait until the optimizer has set rate and decay.

    divisors: of muP, by which rates are divided, and decays multiplied, so that the share of a
    weight that a step subtracts does not depend on the width.
    """
    rate = {} if group.lr is None else {"lr": group.lr}
    for one in groups:
        if group.weight_decay is not None and "weight_decay" not in one:
            one["weight_decay"] = group.weight_decay
        split: dict[tuple[float, float], list[Named]] = {}
        for member in one["params"]:
            divisor = divisors.get(member[1], 1.0)
            factor = factors.get(member[1], 1.0) * (group.lr_factor or 1.0)
            split.setdefault((factor / divisor, divisor), []).append(member)
        for (factor, decay), members in split.items():
            scaled = {"lr_factor": factor, "decay_factor": decay}
            yield {**one, **rate, **scaled, "params": members}


def _layer_factors(model: nn.Module, layer_decay: float) -> dict[nn.Parameter, float]:
    """The factor on the rate of each parameter: layer_decay^n with n layers above it in its stack;
    embeddings, and what else a stack has before its layers, are below all of them.
    """
    if layer_decay == 1.0:
        return {}
    places, table = parameter_places(model), parameter_table(model)
    depth: dict[str, int] = {}
    for place in places.values():
        if place.layer is not None:
            depth[place.stack] = max(depth.get(place.stack, 0), place.layer + 1)
    deepest = max(depth.values(), default=0)
    found = {}
    for name, parameter in model.named_parameters():
        place, role = places.get(parameter, Place()), table[canonical(name)].role
        above = 0
        if place.layer is not None:
            above = depth[place.stack] - 1 - place.layer
        elif role == "embedding":
            above = depth.get(place.stack, deepest)
        found[parameter] = layer_decay**above
    return found
