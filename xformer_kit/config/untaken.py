"""Options that no layer takes: of a shared part, of a stack's or a variant's differences, or of
what looks at another stack.

A layer takes an option from a place where its own part has the same value. What stands at its
default was asked for by nobody, and what could not stand there (eight heads of 36 channels) had to
be said.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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
from xformer_kit.registry import Context, Registry, shown

CHOSEN = tuple(f"model.{stack}.mask" for stack in STACKS)  # which conf/model chooses
OF = {
    "attn": "an attention",
    "kernel": "an attention",
    "ffn": "a feed-forward network",
    "norm": "a norm",
}
OF |= {"mask": "an attention to its own stack", "position": "an attention to its own stack"}


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
    for place in placed_options(config, plans):
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
    for place in placed_options(config, plans):
        chosen = place.path == place.kind or ("name" in place.said and place.path in CHOSEN)
        if chosen and not any(node["name"] == place.node["name"] for node in place.takers):
            yield place.path, f"{_why(place, place.takers)}. Leave it out."


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
