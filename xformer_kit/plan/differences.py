"""Differences: a config's shared components, with what a stack, a variant or a sublayer changes.

The top-level nodes of the config are the base block. A stack holds differences from it, a variant
differences from its stack. A difference that names another component replaces the shared one, and
only `heads`, `kv_heads` and `head_dim` carry over, if the new one has them; one that names none
changes options of the shared one. Plain data, nothing is built.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xformer_kit.attention import ATTENTIONS
from xformer_kit.ffn import FFNS
from xformer_kit.kernel import KERNELS
from xformer_kit.mask import MASKS
from xformer_kit.norm import NORMS
from xformer_kit.placement import PLACEMENTS
from xformer_kit.position import POSITIONS
from xformer_kit.registry import Node, Registry

KINDS: dict[str, Registry] = {
    "attn": ATTENTIONS,
    "mask": MASKS,
    "position": POSITIONS,
    "norm": NORMS,
    "placement": PLACEMENTS,
    "ffn": FFNS,
    "kernel": KERNELS,
}
STACKS = ("encoder", "decoder")
CARRIED = ("heads", "kv_heads", "head_dim")
SUBLAYERS = ("attn", "cross", "ffn")
# Kinds that a sublayer of a layout may set in addition to its component.
WITH_SUBLAYER = {"attn": ("mask", "position", "norm"), "ffn": ("norm",)}
MULTIPLIER = "multiplier"  # factor on a sublayer's output; a layout may set it too
# Laws that only the output stack must keep, because a source is computed in one call.
OUTPUT_LAWS = ("causality", "cache")
CROSS_DEFAULTS = {"mask": MASKS.defaults("full"), "position": POSITIONS.defaults("none")}


@dataclass(frozen=True)
class SublayerNodes:
    """A sublayer's name in the block, its kind, and the complete nodes of its components."""

    name: str  # attn, cross, ffn, ffn_2, ...
    kind: str  # attn or ffn
    component: Node
    mask: Node
    position: Node
    kernel: Node
    norm: Node  # of its placement, and of the norms inside it
    cross: bool = False
    multiplier: float = 1.0  # of what it adds to the residual stream, next to the model's


def has_norms(placement: Node) -> bool:
    """Whether a placement has norms in its blocks."""
    return "norm" in PLACEMENTS.model_arguments(placement["name"])


def as_node(node: Any) -> Node:
    """A node, or the node that a bare name stands for."""
    return {"name": node} if isinstance(node, str) else node or {}


def merge(kind: str, base: Node, difference: Any) -> dict[str, Any]:
    """A complete node of a kind, {name: ..., option: value}, with a difference: a name, a node that
    need not be complete, or None.
    """
    difference = as_node(difference)
    registry, name = KINDS[kind], difference.get("name", base["name"])
    if name != base["name"]:
        options = registry.options(name)
        carried = {key: base[key] for key in CARRIED if key in base and key in options}
        base = registry.defaults(name) | carried
    inner = {
        key: _merge_nested(inner, base[key], difference[key])
        for key, inner in registry.inner(name).items()
        if key in base and key in difference
    }
    return {**base, **difference, **inner}


def _merge_nested(registry: Registry, base: Any, difference: Any) -> Any:
    """The same for a nested component, such as attn.score, whose node, a mapping or a name, need
    not be complete.
    """
    base = registry.as_node(base)
    if not isinstance(base, Mapping) or not isinstance(difference, Mapping):
        return difference
    same = difference.get("name", base["name"]) == base["name"]
    return {**base, **difference} if same else difference


def base_nodes(config: Node) -> dict[str, dict[str, Any]]:
    """Kind -> complete node of the shared component."""
    nodes = {}
    for kind, registry in KINDS.items():
        node = as_node(config.get(kind))
        nodes[kind] = registry.defaults(node["name"]) | dict(node)
    return nodes


def merge_differences(
    nodes: Node, differences: Node, path: str, provenance: Mapping[str, str]
) -> tuple[dict, dict]:
    """The nodes, kind -> complete node, with a stack's or variant's differences at a config path,
    and the path that set each value, such as {"attn.heads": "model.decoder.attn"}.
    """
    nodes, provenance = dict(nodes), dict(provenance)
    for kind in KINDS:
        if kind not in differences:
            continue
        difference = as_node(differences[kind])
        new = merge(kind, nodes[kind], difference)
        if new["name"] != nodes[kind]["name"]:
            provenance = {k: v for k, v in provenance.items() if not k.startswith(f"{kind}.")}
        provenance.update({f"{kind}.{key}": f"{path}.{kind}" for key in difference})
        nodes[kind] = new
    return nodes, provenance


def merge_sublayer(kind: str, nodes: Mapping[str, Node], difference: Any) -> dict[str, Any]:
    """A difference, which may also hold `norm`, `mask`, `position` and `multiplier`, merged with a
    sublayer's nodes: {"component": complete node}, with those of the others that it holds.
    """
    difference = dict(as_node(difference))
    merged = {MULTIPLIER: difference.pop(MULTIPLIER)} if MULTIPLIER in difference else {}
    for other in WITH_SUBLAYER[kind]:
        if other in difference:
            merged[other] = merge(other, nodes[other], difference.pop(other))
    return merged | {"component": merge(kind, nodes["component"], difference)}


def layout_of(stack: Node, variant: Node, has_source: bool) -> list[Any]:
    """The layout of a variant's block: a list of names of sublayers, mappings {name: difference},
    and lists of both.
    """
    default = ["attn", "cross", "ffn"] if has_source else ["attn", "ffn"]
    return variant.get("layout") or stack.get("layout") or default


def sublayers(
    layout: list[Any], nodes: Mapping[str, Node], cross: Sequence[Any] = ()
) -> tuple[tuple[SublayerNodes, ...], ...]:
    """A layout such as [attn, [attn, ffn], {ffn: {width: 64}}, ffn] with names and complete nodes.

    cross: differences of cross attentions, in the order in which they apply.
    """
    counts: Counter[str] = Counter()

    def complete(entry: Any) -> SublayerNodes:
        word, difference = (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))
        counts[word] += 1
        name = word if counts[word] == 1 else f"{word}_{counts[word]}"
        kind = "ffn" if word == "ffn" else "attn"
        kinds = "mask", "position", "kernel", "norm"
        merged: dict[str, Any] = {"component": nodes[kind]} | {k: nodes[k] for k in kinds}
        differences = [difference]
        if word == "cross":
            merged |= CROSS_DEFAULTS
            differences = [*cross, difference]
        for change in differences:
            merged |= merge_sublayer(kind, merged, change)
        return SublayerNodes(name, kind, cross=word == "cross", **merged)

    groups = [entry if isinstance(entry, list) else [entry] for entry in layout]
    return tuple(tuple(complete(entry) for entry in group) for group in groups)
