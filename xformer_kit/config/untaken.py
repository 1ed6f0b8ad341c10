"""Options that no layer takes: of a shared part, of a stack's or a variant's differences, or of
what looks at another stack.

A layer takes an option from a place where its own part has the same value. What stands at its
default was asked for by nobody, and what could not stand there (eight heads of 36 channels) had to
be said.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from xformer_kit.config.data import not_read
from xformer_kit.plan import (
    CARRIED,
    CROSS_DEFAULTS,
    KINDS,
    STACKS,
    WITH_SUBLAYER,
    BlockPlan,
    Node,
    StackPlan,
    SublayerPlan,
    as_node,
    base_nodes,
    layout_path,
    merge_sublayer,
    stacks,
)
from xformer_kit.registry import Context, Registry, shown

CHOSEN = tuple(f"model.{stack}.mask" for stack in STACKS)  # which conf/model chooses
Nodes = Mapping[str, Node]
OF = {
    "attn": "an attention",
    "kernel": "an attention",
    "ffn": "a feed-forward network",
    "norm": "a norm",
}
OF |= {"mask": "an attention to its own stack", "position": "an attention to its own stack"}


class Leaf(NamedTuple):
    value: Any
    usual: Any  # what it would be, were it not said: its default, or what the difference lies over


class Place(NamedTuple):
    """Where a config says something of a kind of part, and the parts of the layers that may take
    it.
    """

    path: str
    kind: str
    node: Node  # complete
    below: Node | None  # the same without what is said here; None: defaults
    said: frozenset[str]  # its options that are said here
    takers: Sequence[Node]
    of: str  # which layers these are


def faults(config: Mapping[str, Any], plans: Sequence[StackPlan]) -> Iterator[str]:
    """A sentence for each option that no layer takes."""
    yield from _layouts(config, plans)
    for place, key, leaf in found(config, plans):
        where = place.path if key == "name" else f"{place.path}.{key.removesuffix('.name')}"
        way = (
            f"it {shown(leaf.usual)}" if place.path == place.kind else "it out"
        )  # a difference is there, or is not
        others, unreached = _set_by(place, key, plans), _unreached(config, place, plans)
        ways = [f"set {path}" for path in others] + [
            f"add base to {pattern}" for pattern in unreached
        ]
        way = f"{', '.join(ways)}, or leave {way}" if ways else f"leave {way}"
        why = _why(place, place.takers)
        if unreached:
            patterns = " and ".join(unreached)
            why = (
                f"no {place.of} takes it, for {patterns} never name{'s' * (len(unreached) == 1)}"
                " base"
            )
        yield f"{where}: {why}; got {shown(leaf.value)}. {way[0].upper()}{way[1:]}."


def _plans_of(place: Place, plans: Sequence[StackPlan]) -> list[StackPlan]:
    """The stacks that a place is about: all, or the one that its path names."""
    return [
        plan
        for plan in plans
        if place.path == place.kind or place.path.startswith(f"model.{plan.name}.")
    ]


def _unreached(config: Mapping[str, Any], place: Place, plans: Sequence[StackPlan]) -> list[str]:
    """The patterns that leave out the base, which takes what is shared or a stack's; none if a
    stack has another pattern.
    """
    if not place.takers or ".variants." in place.path or ".layout." in place.path:
        return []
    patterns = {
        plan.name: (config["model"][plan.name] or {}).get("pattern")
        for plan in _plans_of(place, plans)
    }
    if any(not pattern or "base" in pattern for pattern in patterns.values()):
        return []
    return [f"model.{name}.pattern" for name in patterns]


def _set_by(place: Place, key: str, plans: Sequence[StackPlan]) -> list[str]:
    """The paths, a stack's or variants', where the layers have this option from."""
    option = f"{place.kind}.{key}"
    paths = (
        block.provenance.get(option) for plan in _plans_of(place, plans) for block in plan.blocks
    )
    return [
        f"{path}.{key}" for path in dict.fromkeys(paths) if path is not None and path != place.path
    ]


def _layouts(config: Mapping[str, Any], plans: Sequence[StackPlan]) -> Iterator[str]:
    """A stack's layout where each of its layers is of a variant with another."""
    for plan in plans:
        stack = config["model"][plan.name] or {}
        used = {block.variant for block in plan.blocks}
        variants = stack.get("variants") or {}
        if (
            stack.get("layout")
            and "base" not in used
            and all((variants[name] or {}).get("layout") for name in used)
        ):
            yield (
                f"model.{plan.name}.layout: no layer takes it, for each variant has another of its"
                f" own; got {shown(stack['layout'])}. Leave it out."
            )


def found(
    config: Mapping[str, Any], plans: Sequence[StackPlan]
) -> Iterator[tuple[Place, str, Leaf]]:
    """Each option that no layer takes, with the place that says it."""
    for place in _places(config, plans):
        if place.node in place.takers:
            continue  # most often, and then all of it is taken
        own = _leaves(place.kind, place.node, place.below)
        takers = [
            _leaves(place.kind, node) for node in {id(node): node for node in place.takers}.values()
        ]
        for key, leaf in own.items():
            said = key.partition(".")[0] in place.said and (
                leaf.value != leaf.usual or key == "name"
            )
            if key == "name" and place.path in CHOSEN:
                continue
            if (
                said
                and not any(_takes(own, key, other) for other in takers)
                and _could_be(config, place, key, leaf.usual)
            ):
                yield place, key, leaf


def ignored(config: Mapping[str, Any], given: Iterable[str]) -> Iterator[str]:
    """Sentences for keys that somebody gave on the command line and that this run would not read.
    The config is valid.

    What a default or an experiment says stays: a run may have more than it reads, but nothing that
    was asked for in vain.
    """
    rules, left = dict(not_read(config)), dict(parts(config, stacks(config)))
    for key in dict.fromkeys(given):
        if rule := next(
            (rule for rule in rules if key == rule or key.startswith(f"{rule}.")), None
        ):
            yield f"{key}: {rules[rule]}"
        if (kind := key.removesuffix(".name")) in left:
            yield f"{key}: {left[kind]}"
        if key == "schedule.warmup" and (
            sentence := never_peaks(config, config["trainer"].get("max_steps"))
        ):
            yield sentence


def never_peaks(config: Mapping[str, Any], steps: int | None) -> str | None:
    """The sentence for a warm-up that ends after the last step of a run; `steps`: of the run, if
    they are known.
    """
    warmup = as_node(config["schedule"]).get("warmup", 0)
    if steps is None or warmup < steps:
        return None
    return (
        "schedule.warmup: must be below the steps of the run, or the learning rate never reaches"
        f" optim.lr; got {warmup:,} and {steps:,}. Try schedule.warmup={steps // 10}."
    )


def parts(config: Mapping[str, Any], plans: Sequence[StackPlan]) -> Iterator[tuple[str, str]]:
    """Paths of parts that no layer takes, of those that a default may have chosen, and why."""
    for place in _places(config, plans):
        chosen = place.path == place.kind or ("name" in place.said and place.path in CHOSEN)
        if chosen and not any(node["name"] == place.node["name"] for node in place.takers):
            yield place.path, f"{_why(place, place.takers)}. Leave it out."


def _places(config: Mapping[str, Any], plans: Sequence[StackPlan]) -> Iterator[Place]:
    shared = base_nodes(config)
    for kind, node in shared.items():
        takers = [taker for plan in plans for taker in _takers(config, kind, plan)]
        yield Place(kind, kind, node, None, frozenset(node) - {"name"}, takers, "layer")
    for plan in plans:
        stack = config["model"][plan.name] or {}
        base = plan.variants["base"]
        yield from _differences(config, plan, base.path, stack, (shared, base.nodes), None)
        for name, differences in (stack.get("variants") or {}).items():
            if name in plan.variants:
                block = plan.variants[name]
                yield from _differences(
                    config, plan, block.path, differences or {}, (base.nodes, block.nodes), name
                )
        yield from _laid_out(plan)


def _differences(
    config: Mapping[str, Any],
    plan: StackPlan,
    path: str,
    said: Node,
    nodes: Sequence[Nodes],
    variant: str | None,
) -> Iterator[Place]:
    """What a stack, or a variant of it, says of its parts and of those that look at another stack;
    `nodes`: what that lies over, and with it.
    """
    of = f"layer of the {plan.name}" + (f"'s variant '{variant}'" if variant else "")
    for kind in KINDS:
        if said.get(kind):
            takers = list(_takers(config, kind, plan, variant))
            below, node = (some[kind] for some in nodes)
            yield Place(
                f"{path}.{kind}", kind, node, below, frozenset(as_node(said[kind])), takers, of
            )
    if said.get("cross"):
        subs = [(block, sub) for block, sub in _subs(plan, variant) if sub.cross]
        before = (config["model"][plan.name] or {}).get("cross") if variant else None
        below = {"component": nodes[1]["attn"], "norm": nodes[1]["norm"]} | CROSS_DEFAULTS
        below |= merge_sublayer("attn", below, before)
        node, difference = (
            below | merge_sublayer("attn", below, said["cross"]),
            dict(as_node(said["cross"])),
        )
        beside = {
            kind: difference.pop(kind) for kind in WITH_SUBLAYER["attn"] if kind in difference
        }
        for kind, own in ({"attn": difference} | beside).items():
            if own:
                takers = [
                    _of(sub, kind) for block, sub in subs if kind != "norm" or _normed(block, sub)
                ]
                where, key = (
                    (f"{path}.cross", "component")
                    if kind == "attn"
                    else (f"{path}.cross.{kind}", kind)
                )
                words = frozenset(as_node(own))
                yield Place(
                    where, kind, node[key], below[key], words, takers, f"cross attention in a {of}"
                )


def _laid_out(plan: StackPlan) -> Iterator[Place]:
    """Norms that a layout gives a sublayer; its part, its mask and its position are its own,
    whatever stands around them.
    """
    for block in _blocks(plan, None):
        below = block.nodes["norm"]
        for sub in (
            sub for group in block.groups for sub in group if not sub.cross and sub.norm != below
        ):
            words = frozenset(key for key, value in sub.norm.items() if value != below.get(key))
            takers = [sub.norm] if _normed(block, sub) else []
            yield Place(
                f"{layout_path(block, sub)}.norm",
                "norm",
                sub.norm,
                below,
                words,
                takers,
                "such sublayer",
            )


def _takers(
    config: Mapping[str, Any], kind: str, plan: StackPlan, variant: str | None = None
) -> Iterator[Node]:
    """The parts of a kind in the layers of a stack, or of one of its variants, and where the stack
    itself has one.
    """
    base = plan.variants["base"]
    if kind == "placement":
        yield from (block.nodes[kind] for block in _blocks(plan, variant))
        yield {"name": base.nodes[kind]["name"]}  # it begins and ends the stream of a stack
    elif kind == "norm":
        yield from _norms(config, plan, variant)
    else:
        of = "ffn" if kind == "ffn" else "attn"
        subs = [sub for _, sub in _subs(plan, variant) if sub.kind == of]
        yield from (
            _of(sub, kind) for sub in subs if not (sub.cross and kind in ("mask", "position"))
        )
        if kind == "position" and "embed" in KINDS[kind][base.nodes[kind]["name"]].hooks():
            yield base.nodes[kind]


def _norms(config: Mapping[str, Any], plan: StackPlan, variant: str | None) -> Iterator[Node]:
    """Norms of placements, of parts that norm inside, and of a stack's ends."""
    model, base = config["model"], plan.variants["base"]
    final = (
        KINDS["placement"][base.nodes["placement"]["name"]].final_norm
        if model["final_norm"] is None
        else model["final_norm"]
    )
    speaks = plan.name == [name for name in STACKS if name in model][-1]
    if final or model["embed_norm"] or (model["head_transform"] and speaks):
        yield base.nodes["norm"]
    yield from (sub.norm for block, sub in _subs(plan, variant) if _normed(block, sub))


def _normed(block: BlockPlan, sub: SublayerPlan) -> bool:
    """Whether a sublayer has a norm: of its placement, or in a part that is given the kind of norm
    of its block, where its `norms_with(options)` does not say no.
    """
    name, parts = sub.component["name"], KINDS[sub.kind]
    with_options = getattr(parts[name], "norms_with", None)
    inside = "norm" in parts.wanted(name) and (with_options is None or with_options(sub.component))
    return inside or KINDS["placement"][block.nodes["placement"]["name"]].normed


def _blocks(plan: StackPlan, variant: str | None) -> Iterable[BlockPlan]:
    return {id(block): block for block in plan.blocks if variant in (None, block.variant)}.values()


def _subs(plan: StackPlan, variant: str | None) -> list[tuple[BlockPlan, SublayerPlan]]:
    return [
        (block, sub) for block in _blocks(plan, variant) for group in block.groups for sub in group
    ]


def _of(sub: SublayerPlan, kind: str) -> Node:
    return sub.component if kind == sub.kind else getattr(sub, kind)


def _leaves(kind: str, node: Node, below: Node | None = None) -> dict[str, Leaf]:
    """Every option, those of parts inside too: name, heads, score.name, score.softcap, ... with
    what it is in `below`, if that is the same part, or its default.
    """
    under = _leaves(kind, below) if below is not None and below["name"] == node["name"] else {}

    def within(registry: Registry, node: Any, usual: str, path: str) -> Iterator[tuple[str, Leaf]]:
        node = registry.complete(node)
        same = not path or (
            f"{path}name" in under and under[f"{path}name"].value == node["name"]
        )  # as a part around
        inner, defaults = registry.inner(node["name"]), registry.defaults(node["name"])
        for key, value in node.items():
            default = defaults.get(key) if key != "name" else usual
            if key in inner and value is not None:
                chosen = inner[key].named(default)
                yield from within(
                    inner[key], value, chosen["name"] if chosen else "none", f"{path}{key}."
                )
            else:
                yield (
                    path + key,
                    Leaf(
                        value, under[path + key].value if same and path + key in under else default
                    ),
                )

    return dict(within(KINDS[kind], node, "", ""))


def _takes(own: Mapping[str, Leaf], key: str, other: Mapping[str, Leaf]) -> bool:
    """Whether a layer's part has this option from here: the same value, in the same parts around
    it.
    """
    words = key.split(".")
    around = (
        []
        if key in CARRIED
        else [".".join((*words[:depth], "name")) for depth in range(len(words))]
    )
    return all(one in other and other[one].value == own[one].value for one in (*around, key))


def _why(place: Place, takers: Sequence[Any]) -> str:
    if takers:
        return f"no {place.of} takes it, for each has another of its own"
    if place.of.startswith("cross") and place.kind != "norm":
        return f"there is no {place.of}"
    return f"no {place.of} has {OF[place.kind]}"


def _could_be(config: Mapping[str, Any], place: Place, key: str, usual: Any) -> bool:
    """Whether the option could stand at its default, as far as that is asked of an option of the
    part itself.
    """
    if "." in key or key == "name":
        return True
    context = Context(dim=config["model"]["dim"])
    return not list(KINDS[place.kind].faults({**place.node, key: usual}, place.path, context))
