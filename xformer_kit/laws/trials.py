"""The compositions in which a component is checked.

A user's component is checked with its own defaults, or with each option set of its `variants`, and
with each other value of each option that has few values.
"""

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from xformer_kit.attention import ATTENTIONS
from xformer_kit.config import NESTED_GROUPS
from xformer_kit.extra import EXTRAS
from xformer_kit.laws.tiny_composition import DIM, faults, overrides, tiny_config, tiny_node
from xformer_kit.laws.variants import DISTANT
from xformer_kit.mask import Mask
from xformer_kit.plan import KINDS
from xformer_kit.registry import REQUIRED, Fault, Node, nested

COMPONENTS = KINDS | NESTED_GROUPS | {"extra": EXTRAS}
# Channels of the residual stream: the first number with which most compositions are accepted, since
# a default, such as 8 heads, may have to divide it.
DIMS = (DIM, 48, 64, 40, 56, 80, 96, 128)
# Other choices that a component is composed with. Together they cover the kinds of masks and the
# places at which a position enters.
COMPANIONS: tuple[Node, ...] = (
    {"mask": "causal", "position": "rotary"},
    {
        "mask": "sliding_window",
        "position": "alibi",
        "norm": "layer",
        "placement": "post",
        "ffn": "mlp",
    },
    {
        "mask": "causal",
        "position": "learned",
        "norm": "layer",
        "placement": "sandwich",
        "tie_embeddings": False,
    },
    {"mask": "full", "position": "none", "decoder": {"layout": [["attn", "ffn"]]}},
    {
        "mask": DISTANT,
        "position": "sinusoidal",
        "ffn": "mlp",
        "decoder": {"layout": ["ffn", "attn", "ffn"]},
    },
    {"model": "encoder", "position": "learned", "norm": "layer", "placement": "post", "ffn": "mlp"},
    {
        "model": "encoder_decoder",
        "mask": "prefix",
        "position": "alibi",
        "encoder": {"position": {"name": "none"}},
        "share_embeddings": False,
    },
)


class Trial(NamedTuple):
    """One composition with a component: its options, the config, and why it is refused."""

    node: Node
    config: Node
    faults: list[Fault]  # empty: the laws are checked

    @property
    def changes(self) -> str:
        """The overrides in which it differs from the tiny default model of the package."""
        base = set(overrides(tiny_config()))
        return " ".join(word for word in overrides(self.config) if word not in base)


def trials(kind: str, name: str) -> list[Trial]:
    """Returns the compositions in which each option set of a component is composed with companions,
    each option set and each set of companions at least once; then those of the other values of its
    options that a simple model refuses, of which one may be accepted in every second layer.
    """
    dim, needed, own = fitting_dim(kind, name), _needed_changes(kind, name), own_sets(kind, name)

    def trial(node: Node, companions: Node) -> Trial:
        changes = {**companions, **needed, **config_changes(kind, node), "dim": dim}
        config = tiny_config(**changes)
        return Trial(node, config, faults(config))

    def in_second_layers(refused: Trial) -> Trial:
        other = {key: value for key, value in refused.node.items() if value != own[0][key]}
        layers = {"pattern": ["base", "other"], "variants": {"other": {kind: other}}}
        found = trial(own[0], {"decoder": layers, "layers": 4})
        return refused if found.faults else found._replace(node=refused.node)

    others = [trial(node, {}) for node in _other_choices(kind, own[0])]
    refused = [one for one in others if one.faults]
    if kind in KINDS:
        refused = sorted(map(in_second_layers, refused), key=lambda one: bool(one.faults))
    nodes: list[Node] = [*own, *(one.node for one in others if not one.faults)]
    rounds = 1 + (len(nodes) - 1) // len(COMPANIONS)
    found = [
        trial(nodes[i % len(nodes)], companions) for i, companions in enumerate(COMPANIONS * rounds)
    ]
    return [*found, *refused]


def fitting_dim(kind: str, name: str) -> int:
    """Returns the first of DIMS with which most companions accept the component's first option
    set.
    """
    refused = dict[int, int]()  # dim -> number of companions
    for dim in DIMS:
        refused[dim] = sum(map(bool, _faults_with_dim(kind, name, dim)))
        if not refused[dim]:
            return dim
    return min(refused, key=lambda dim: refused[dim])


def size_note(kind: str, name: str, dim: int) -> str:
    """Returns why a component is checked in models with another `model.dim` than others, or ""."""
    if dim == DIM:
        return ""
    fault = next(faults[0] for faults in _faults_with_dim(kind, name, DIM) if faults)
    return f"In models of model.dim={dim}, not {DIM}, where its options are refused: {fault}"


def _faults_with_dim(kind: str, name: str, dim: int) -> list[list[Fault]]:
    """Returns the faults of the component's first option set with each set of companions."""
    changes = config_changes(kind, own_sets(kind, name)[0])
    changes = {**_needed_changes(kind, name), **changes, "dim": dim}
    return [faults(tiny_config(**{**companions, **changes})) for companions in COMPANIONS]


def own_sets(kind: str, name: str) -> list[dict[str, Any]]:
    """Returns the complete node of a component for each of its `variants`, or that of its
    defaults.
    """
    base = default_node(kind, name)
    return [{**base, **variant} for variant in vars(COMPONENTS[kind][name]).get("variants") or [{}]]


def _needed_changes(kind: str, name: str) -> dict[str, Any]:
    """Returns, for a kernel that computes no scores, the attention that it supports and that can be
    composed with most companions.
    """
    if kind != "kernel" or "scores" in KINDS[kind][name].computes:
        return {}
    computed = KINDS[kind][name].computes
    supported = [attn for attn, component in ATTENTIONS.items() if component.computes in computed]

    def count_accepted(attn: str) -> int:
        configs = (tiny_config(**{**companions, "attn": attn}) for companions in COMPANIONS)
        return sum(not faults(config) for config in configs)

    return {"attn": max(supported, key=count_accepted)}


def option_variants(kind: str, name: str) -> list[dict[str, Any]]:
    """Returns the node of a component with its defaults, and with each other value of each option
    that has few values, if the config accepts it.
    """
    base = default_node(kind, name)
    nodes = [base, *_other_choices(kind, base)]
    return [one for one in nodes if not faults(tiny_config(**config_changes(kind, one)))] or [base]


def default_node(kind: str, name: str) -> dict[str, Any]:
    """Returns the complete node of a component, with an example for each required option."""
    registry = COMPONENTS[kind]
    node = tiny_node(kind, name) if kind in KINDS else registry.defaults(name)
    options = registry.options(name)
    required = [key for key, value in node.items() if value == REQUIRED]
    return node | {key: example_value(options[key].type) for key in required}


def _other_choices(kind: str, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the node with each other value of each option that has few values."""
    for key, option in COMPONENTS[kind].options(node["name"]).items():
        for choice in option_choices(option.type):
            if choice != node[key]:
                yield {**node, key: choice}


def option_choices(annotation: Any) -> list[Any]:
    """Returns the values of an option that has few: booleans, literals, nested components."""
    if annotation is bool:
        return [True, False]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) is UnionType:
        return [choice for a in get_args(annotation) for choice in option_choices(a)]
    inner = nested(annotation) if get_origin(annotation) is Callable else None
    return [{"name": name} for name in inner or ()]


def config_changes(kind: str, node: Node) -> dict[str, Any]:
    """Returns the arguments of `tiny_config` for a component; a nested component is an option of
    the first component that has such an option.
    """
    outer, _, option = kind.partition(".")
    if kind == "extra":
        return {kind: {node["name"]: {k: v for k, v in node.items() if k != "name"}}}
    if not option:
        return {kind: node}
    first = next(name for name in KINDS[outer] if option in KINDS[outer].inner(name))
    return {outer: {"name": first, option: node}}


def example_value(annotation: Any) -> Any:
    """Returns a value for a required option."""
    if annotation is Mask:
        return {"name": "causal"}
    if get_origin(annotation) in (tuple, list):
        item = example_value(get_args(annotation)[0])
        return [item, {"name": "sliding_window", "window": 3}] if isinstance(item, dict) else [item]
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    return {int: 2, float: 0.5, bool: True, str: "a"}.get(annotation, REQUIRED)
