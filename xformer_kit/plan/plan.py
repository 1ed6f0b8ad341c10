"""Which parts make which block? The rule that lays differences over shared parts; plain data,
nothing is built.

The top-level nodes of the config are the base block. A stack holds differences from it, a variant
differences from its stack. A difference that names another part replaces the shared one, and only
`heads`, `kv_heads` and `head_dim` carry over, where the new part has them; one that names none
changes options of the shared part.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xformer_kit.attention import ATTENTIONS
from xformer_kit.ffn import FFNS
from xformer_kit.kernel import KERNELS, against, choose
from xformer_kit.mask import MASKS
from xformer_kit.norm import NORMS
from xformer_kit.placement import PLACEMENTS
from xformer_kit.position import POSITIONS
from xformer_kit.registry import ConfigError, Context, Registry

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
BESIDE = {
    "attn": ("mask", "position", "norm"),
    "ffn": ("norm",),
}  # what a layout may say of a sublayer beside its part
STEP = "multiplier"  # of what a sublayer adds to the stream, which a layout may say of it too
AHEAD = ("causality", "cache")  # laws of the stack that speaks: one that it looks at is read whole
SEEN = {
    "mask": MASKS.defaults("full"),
    "position": POSITIONS.defaults("none"),
}  # what a cross attention looks through
Node = Mapping[str, Any]


@dataclass(frozen=True)
class SublayerPlan:
    """One sublayer: what it is called in the block, its part, and for an attention what it looks
    through.
    """

    name: str  # attn, cross, ffn, ffn_2, ...
    kind: str  # attn or ffn
    part: Node
    mask: Node
    position: Node
    kernel: Node
    norm: Node  # of its placement, and of what it norms inside
    cross: bool = False
    multiplier: float = 1.0  # of what it adds to the residual stream, beside that of the model


@dataclass(frozen=True)
class BlockPlan:
    """One block: groups of sublayers that run one after another; those in a group run in parallel
    on one input.
    """

    variant: str  # "base", or the name of a variant
    path: str  # config path of what is special about it
    nodes: Mapping[str, Node]  # kind -> complete node of the block's part
    groups: tuple[tuple[SublayerPlan, ...], ...]
    origins: Mapping[str, str]  # "attn.heads" -> config path of the difference that set it


@dataclass(frozen=True)
class StackPlan:
    name: str
    blocks: tuple[BlockPlan, ...]  # one per layer; layers of one variant share the plan
    variants: Mapping[str, BlockPlan]  # those that are used, "base" among them
    calls: tuple[int, ...]  # for each layer the block that it calls: 0, 1, 2, ... where none share
    future: int = 0  # blocks beside the last one, each for a token further ahead


def merge(kind: str, base: Node, difference: Any) -> dict[str, Any]:
    """A difference laid over a complete node of the same kind."""
    difference = named(difference)
    registry, name = KINDS[kind], difference.get("name", base["name"])
    if name != base["name"]:
        options = registry.options(name)
        base = registry.defaults(name) | {
            key: base[key] for key in CARRIED if key in base and key in options
        }
    inner = {
        key: within(inner, base[key], difference[key])
        for key, inner in registry.inner(name).items()
        if key in base and key in difference
    }
    return {**base, **difference, **inner}


def within(registry: Registry, base: Any, difference: Any) -> Any:
    """The same for a part of a part, such as attn.score, whose node need not be complete."""
    base = registry.named(base)
    if not isinstance(base, Mapping) or not isinstance(difference, Mapping):
        return difference
    return (
        {**base, **difference}
        if difference.get("name", base["name"]) == base["name"]
        else difference
    )


def named(node: Any) -> Node:
    """A node, or the bare name that stands for one."""
    return {"name": node} if isinstance(node, str) else node or {}


def base_nodes(config: Node) -> dict[str, dict[str, Any]]:
    """The shared parts as complete nodes."""
    nodes = {}
    for kind, registry in KINDS.items():
        node = named(config.get(kind))
        nodes[kind] = registry.defaults(node["name"]) | dict(node)
    return nodes


def lay_over(
    nodes: Node, differences: Node, path: str, origins: Mapping[str, str]
) -> tuple[dict, dict]:
    """The nodes with a stack's or variant's differences, and where each changed value came from."""
    nodes, origins = dict(nodes), dict(origins)
    for kind in KINDS:
        if kind not in differences:
            continue
        difference = named(differences[kind])
        new = merge(kind, nodes[kind], difference)
        if new["name"] != nodes[kind]["name"]:
            origins = {k: v for k, v in origins.items() if not k.startswith(f"{kind}.")}
        origins.update({f"{kind}.{key}": f"{path}.{kind}" for key in difference})
        nodes[kind] = new
    return nodes, origins


def layout_of(stack: Node, variant: Node, has_source: bool) -> list[Any]:
    default = ["attn", "cross", "ffn"] if has_source else ["attn", "ffn"]
    return variant.get("layout") or stack.get("layout") or default


def laid(kind: str, nodes: Mapping[str, Node], difference: Any) -> dict[str, Any]:
    """A sublayer's nodes, `part`, `norm`, `mask` and `position`, and its multiplier, with a
    difference that may hold them all.
    """
    difference = dict(named(difference))
    step = {STEP: difference.pop(STEP)} if STEP in difference else {}
    beside = [other for other in BESIDE[kind] if other in difference]
    found = {other: merge(other, nodes[other], difference.pop(other)) for other in beside}
    return found | step | {"part": merge(kind, nodes["part"], difference)}


def sublayers(
    layout: list[Any], nodes: Mapping[str, Node], cross: Sequence[Any] = ()
) -> tuple[tuple[SublayerPlan, ...], ...]:
    """The layout with names and complete nodes: [attn, [attn, ffn], {ffn: {width: 64}}, ffn].
    `cross`: the differences of what looks at another stack, one laid over the other.
    """
    counts: dict[str, int] = {}

    def plan(entry: Any) -> SublayerPlan:
        word, difference = (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))
        counts[word] = counts.get(word, 0) + 1
        name = word if counts[word] == 1 else f"{word}_{counts[word]}"
        kind = "ffn" if word == "ffn" else "attn"
        found: dict[str, Any] = {"part": nodes[kind]} | {
            other: nodes[other] for other in ("mask", "position", "kernel", "norm")
        }
        if word == "cross":
            found |= SEEN
        for some in (*cross, difference) if word == "cross" else (difference,):
            found |= laid(kind, found, some)
        return SublayerPlan(name, kind, cross=word == "cross", **found)

    groups = [entry if isinstance(entry, list) else [entry] for entry in layout]
    return tuple(tuple(plan(entry) for entry in group) for group in groups)


def stack_plan(config: Node, name: str) -> StackPlan:
    """The blocks of one stack, layer by layer. The config is taken to be valid."""
    model, path = config["model"], f"model.{name}"
    stack = model[name] or {}
    has_source = name == "decoder" and "encoder" in model
    shared, origins = lay_over(base_nodes(config), stack, path, {})

    def block(variant: str) -> BlockPlan:
        differences = {} if variant == "base" else (stack.get("variants") or {})[variant] or {}
        where = path if variant == "base" else f"{path}.variants.{variant}"
        nodes, from_ = lay_over(shared, differences, where, origins)
        cross = [node["cross"] for node in (stack, differences) if node.get("cross")]
        groups = sublayers(layout_of(stack, differences, has_source), nodes, cross)
        return BlockPlan(variant, where, nodes, groups, from_)

    layers = stack.get("layers") or model["layers"]
    order = layer_order(stack, layers)
    variants = {variant: block(variant) for variant in dict.fromkeys(["base", *order])}
    calls = shared_by(
        layers, stack.get("unique_layers") or model["unique_layers"] or layers, model["sharing"]
    )
    speaks = name == [other for other in STACKS if other in model][-1]
    future = (model.get("future_tokens") or 1) - 1 if speaks else 0
    return StackPlan(name, tuple(variants[variant] for variant in order), variants, calls, future)


def shared_by(layers: int, unique: int, sharing: str) -> tuple[int, ...]:
    """The block of each layer, of `unique` that there are (Takase and Kiyono, 2021,
    arXiv:2104.06022, section 2).

    sequence: neighbours share, AABB, as ALBERT's groups do; cycle: the whole stack is called again,
    ABAB, as in the Universal Transformer; cycle_rev: the last time backwards, ABABBA.
    """
    if sharing == "sequence":
        return tuple(i * unique // layers for i in range(layers))
    calls = [i % unique for i in range(layers)]
    if sharing == "cycle_rev" and layers > unique:
        last = layers - (layers % unique or unique)
        calls[last:] = [unique - 1 - at for at in calls[last:]]
    return tuple(calls)


def layer_order(stack: Node, layers: int) -> list[str]:
    """The variant of each layer: the pattern repeated and cut, with `first` and `last` laid over
    its ends.
    """
    pattern = stack.get("pattern") or ["base"]
    order = [pattern[i % len(pattern)] for i in range(layers)]
    first, last = stack.get("first") or [], stack.get("last") or []
    order[: len(first)] = first
    if last:
        order[-len(last) :] = last
    return order[:layers]


def laid_at(block: BlockPlan, sub: SublayerPlan) -> str:
    """The config path of what a layout says of a sublayer."""
    return f"{block.path}.cross" if sub.cross else f"{block.path}.layout.{sub.name}"


def stacks(config: Node) -> list[StackPlan]:
    return [stack_plan(config, name) for name in STACKS if name in config["model"]]


def depths(config: Node) -> dict[str, int]:
    """Stack -> its number of layers."""
    model = config["model"]
    return {
        name: (model[name] or {}).get("layers") or model["layers"]
        for name in STACKS
        if name in model
    }


def max_len(config: Node) -> int:
    """The longest sequence that the model is built for, tokens."""
    return config["model"].get("max_len") or (config.get("data") or {}).get("seq_len") or 1024


def facts(nodes: Mapping[str, Node], dim: int, **more: Any) -> dict[str, Any]:
    """What the parts of a block say of themselves.

    attn: heads, kv_heads, head_dim, projects, computes, ...   mask: band, sees_future, sees_prefix,
    absolute
    position: hooks, relative, isometric, learned, channels, bounded   norm: normalises
    cross: whether it looks at another stack   source: whether its stack has one to look at
    mask_at: the config path where its stack or its variant has a mask of its own, or would have one
    seq_len: tokens of a training example, or None   model: stochastic_depth
    """
    mask = MASKS.create(nodes["mask"])
    position = POSITIONS[nodes["position"]["name"]]
    return {
        "attn": ATTENTIONS[nodes["attn"]["name"]].facts(dict(nodes["attn"]), dim),
        "mask": {
            "band": mask.band(),
            "sees_future": mask.sees_future,
            "sees_prefix": mask.sees_prefix,
            "absolute": mask.absolute,
        },
        "position": {
            "hooks": position.hooks(),
            "relative": position.relative,
            "isometric": position.isometric,
            "learned": position.learned,
            "channels": position.channels,
            "bounded": position.bounded,
        },
        "norm": {"normalises": getattr(NORMS[nodes["norm"]["name"]], "normalises", True)},
    } | more


def contexts(
    config: Node, plan: StackPlan, block: BlockPlan
) -> Iterator[tuple[SublayerPlan, Context]]:
    """Each attention or other sublayer of a block with what it meets there."""
    model = config["model"]
    for group in block.groups:
        for sub in group:
            nodes = dict(block.nodes) | {
                "mask": sub.mask,
                "position": sub.position,
                "norm": sub.norm,
                sub.kind: sub.part,
            }
            yield (
                sub,
                Context(
                    path=block.path,
                    stack=plan.name,
                    dim=model["dim"],
                    layers=len(plan.blocks),
                    max_len=max_len(config),
                    names={kind: node["name"] for kind, node in nodes.items()},
                    options=nodes,
                    facts=facts(
                        nodes,
                        model["dim"],
                        cross=sub.cross,
                        source=plan.name == "decoder" and "encoder" in model,
                        mask_at=_mask_at(model, plan, block),
                        seq_len=(config.get("data") or {}).get("seq_len"),
                        model={"stochastic_depth": model["stochastic_depth"]},
                    ),
                ),
            )


def set_at(kind: str, block: BlockPlan) -> str:
    """The config path that set a block's part."""
    return next((path for key, path in block.origins.items() if key.startswith(f"{kind}.")), kind)


def _mask_at(model: Node, plan: StackPlan, block: BlockPlan) -> str:
    """Where another mask would be that of these layers alone."""
    where = set_at("mask", block)
    return (
        f"model.{plan.name}.mask"
        if where == "mask" and all(name in model for name in STACKS)
        else where
    )


def broken_laws(plan: StackPlan, cross: bool = False) -> dict[str, str]:
    """Law -> which part of the stack breaks it, and why; of the parts that look at another stack
    alone with `cross`.
    """
    blocks = {id(block): block for block in plan.blocks}.values()
    subs = [
        sub for block in blocks for group in block.groups for sub in group if sub.cross or not cross
    ]
    nodes = [] if cross else [(kind, block.nodes[kind]) for block in blocks for kind in KINDS]
    nodes += [
        (kind, node) for sub in subs for kind, node in ((sub.kind, sub.part), ("mask", sub.mask))
    ]
    return {
        law: f"{kind} '{node['name']}' breaks the law of {law} ({reason.rstrip('.')})"
        for kind, node in sorted(nodes, key=lambda pair: (pair[0], pair[1]["name"]))
        for law, reason in KINDS[kind].broken(node).items()
    }


def refuses_on(
    device: str, kernel: str, config: Node, plan: StackPlan, block: BlockPlan, sub: SublayerPlan
) -> str | None:
    """Why a kernel cannot train an attention on a kind of device, or None."""
    context = next(context for other, context in contexts(config, plan, block) if other is sub)
    return against(kernel, replace(context, device=device))


def kernel_of(config: Node, plan: StackPlan, block: BlockPlan, sub: SublayerPlan) -> str:
    """The name of the kernel that an attention runs on."""
    for other, context in contexts(config, plan, block):
        if other is sub:
            return choose(sub.kernel["name"], context)
    raise ConfigError(f"{block.path}: no sublayer is called '{sub.name}'.")
