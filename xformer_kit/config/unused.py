"""Options of a config that have no effect: values that it gives, minus values that a layer uses.

A layer uses an option from a place of the config if its own component has the same value there,
unless the component yields `Unused` for it. An option at its default was not given, and one that
could not stand at its default (eight heads of 36 channels) had to be given.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from xformer_kit.config.compatibility import Refusals
from xformer_kit.config.data import not_read
from xformer_kit.config.option_places import Leaf, Place, placed_options
from xformer_kit.plan import (
    CARRIED,
    KINDS,
    STACKS,
    Node,
    StackPlan,
    as_node,
    stacks,
)
from xformer_kit.registry import Context, Fault, Faults, Registry, format_value

CHOSEN = tuple(f"model.{stack}.mask" for stack in STACKS)  # which conf/model chooses
OF = {
    "attn": "an attention",
    "kernel": "an attention",
    "ffn": "a feed-forward network",
    "norm": "a norm",
}
OF |= {"mask": "an attention to its own stack", "position": "an attention to its own stack"}


def faults(
    config: Node, plans: Sequence[StackPlan], refused: Refusals = MappingProxyType({})
) -> Faults:
    """Every option without effect; refused: what components yield in `cannot`."""
    yield from _layouts(config, plans)
    for place, key, leaf, reason in found(config, plans, refused):
        path = place.path if key == "name" else f"{place.path}.{key.removesuffix('.name')}"
        fault = reason or _not_taken(config, plans, place, key, leaf)
        yield replace(fault, path=path)


def _not_taken(
    config: Node,
    plans: Sequence[StackPlan],
    place: Place,
    key: str,
    leaf: Leaf,
) -> Fault:
    """The fault of an option that no layer has from its place."""
    shared = place.path == place.kind  # a difference is there, or is not
    way = f"leave it {format_value(leaf.usual)}" if shared else "leave it out"
    unreached = _unreached(config, place, plans)
    ways = [f"set {other}" for other in _set_by(place, key, plans)]
    ways += [f"add base to {pattern}" for pattern in unreached]
    way = f"{', '.join(ways)}, or {way}" if ways else way
    why = _why(place)
    if unreached:
        patterns, name = " and ".join(unreached), "name" if len(unreached) > 1 else "names"
        why = f"no {place.of} takes it, for {patterns} never {name} base"
    return Fault("", why, got=format_value(leaf.value), fix=f"{way[0].upper()}{way[1:]}.")


def _plans_of(place: Place, plans: Sequence[StackPlan]) -> list[StackPlan]:
    """The stacks that a place is about: all, or the one that its path names."""
    return [
        plan
        for plan in plans
        if place.path == place.kind or place.path.startswith(f"model.{plan.name}.")
    ]


def _unreached(config: Node, place: Place, plans: Sequence[StackPlan]) -> list[str]:
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


def _layouts(config: Node, plans: Sequence[StackPlan]) -> Faults:
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
            yield Fault(
                f"model.{plan.name}.layout",
                "no layer takes it, for each variant has another of its own",
                got=stack["layout"],
                fix="Leave it out.",
            )


def found(
    config: Node, plans: Sequence[StackPlan], refused: Refusals = MappingProxyType({})
) -> Iterator[tuple[Place, str, Leaf, Fault | None]]:
    """(place, option, value, reason) of each option that no layer uses; the reason is that of a
    component that has the option, None if none has it.
    """
    for place in placed_options(config, plans, refused):
        if any(taker.node == place.node and not taker.unused for taker in place.takers):
            continue  # most often, and then all of it is used
        own = _leaves(place.kind, place.node, place.below)
        takers = [(taker, _leaves(place.kind, taker.node)) for taker in place.takers]
        for key, leaf in own.items():
            given = key.partition(".")[0] in place.given
            chosen = place.path in CHOSEN if key == "name" else leaf.value == leaf.usual
            if not given or chosen:
                continue
            having = [taker for taker, leaves in takers if _takes(own, key, leaves)]
            if having and all(key in taker.unused for taker in having):
                yield place, key, leaf, having[0].unused[key]
            elif not having and _could_be(config, place, key, leaf.usual):
                yield place, key, leaf, None


def ignored(config: Node, given: Iterable[str]) -> Faults:
    """Keys that the command line gives and that this run would not read. The config is valid.

    What a default or an experiment gives stays: a run may have more than it reads, but nothing
    that was given for it and has no effect.
    """
    rules, left = list(not_read(config)), list(components(config, stacks(config)))
    for key in dict.fromkeys(given):
        within = [fault for fault in rules if f"{key}.".startswith(f"{fault.path}.")]
        chosen = [fault for fault in left if fault.path == key.removesuffix(".name")]
        yield from (replace(fault, path=key) for fault in (*within[:1], *chosen))
        if key == "schedule.warmup":
            yield from never_peaks(config, config["trainer"].get("max_steps"))


def never_peaks(config: Node, steps: int | None) -> Faults:
    """The fault of a warm-up that ends after the last step of a run; `steps`: of the run, if they
    are known.
    """
    warmup = as_node(config["schedule"]).get("warmup", 0)
    if steps is not None and warmup >= steps:
        yield Fault(
            "schedule.warmup",
            "must be below the steps of the run, or the learning rate never reaches optim.lr",
            got=f"{warmup:,} and {steps:,}",
            fix=f"Try schedule.warmup={steps // 10}.",
        )


def components(config: Node, plans: Sequence[StackPlan]) -> Faults:
    """Components that no layer has, of those that a default may have chosen."""
    for place in placed_options(config, plans):
        chosen = place.path == place.kind or ("name" in place.given and place.path in CHOSEN)
        names = [taker.node["name"] for taker in place.takers]
        if chosen and place.node["name"] not in names:
            yield Fault(place.path, _why(place), fix="Leave it out.")


def _leaves(kind: str, node: Node, below: Node | None = None) -> dict[str, Leaf]:
    """Every option, those of components inside too: name, heads, score.name, score.softcap, ...
    with what it is in `below`, if that is the same component, or its default.
    """
    under = _leaves(kind, below) if below is not None and below["name"] == node["name"] else {}

    def within(registry: Registry, node: Any, usual: str, path: str) -> Iterator[tuple[str, Leaf]]:
        node = registry.complete(node)
        # The component around it is the same in `below`.
        same = not path or (f"{path}name" in under and under[f"{path}name"].value == node["name"])
        inner, defaults = registry.inner(node["name"]), registry.defaults(node["name"])
        for key, value in node.items():
            default = defaults.get(key) if key != "name" else usual
            if key in inner and value is not None:
                chosen = inner[key].as_node(default)
                yield from within(
                    inner[key], value, chosen["name"] if chosen else "none", f"{path}{key}."
                )
            else:
                lower = under.get(path + key) if same else None
                yield path + key, Leaf(value, lower.value if lower else default)

    return dict(within(KINDS[kind], node, "", ""))


def _takes(own: Mapping[str, Leaf], key: str, other: Mapping[str, Leaf]) -> bool:
    """Whether a layer's component has this option from here: the same value, in the same components
    around it.
    """
    words, keys = key.split("."), [key]
    if key not in CARRIED:
        keys += [".".join((*words[:depth], "name")) for depth in range(len(words))]
    return all(one in other and other[one].value == own[one].value for one in keys)


def _why(place: Place) -> str:
    if place.takers:
        return f"no {place.of} takes it, for each has another of its own"
    if place.of.startswith("cross") and place.kind != "norm":
        return f"there is no {place.of}"
    return f"no {place.of} has {OF[place.kind]}"


def _could_be(config: Node, place: Place, key: str, usual: Any) -> bool:
    """Whether the option could stand at its default, as far as that is asked of an option of the
    component itself.
    """
    if "." in key or key == "name":
        return True
    context = Context(dim=config["model"]["dim"])
    return not list(KINDS[place.kind].faults({**place.node, key: usual}, place.path, context))
