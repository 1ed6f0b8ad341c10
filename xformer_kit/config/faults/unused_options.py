"""Options of a config that have no effect: those that it sets, minus those that a layer uses.

A layer uses an option from a place of the config if its own component has the same value there,
unless the component yields `Unused` for it. An option at its default counts as not set. So does one
whose default is invalid in this model (eight heads of 36 channels): it had to be set.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from xformer_kit.config.faults.component_faults import Refusals
from xformer_kit.config.faults.data_faults import unread_key_faults
from xformer_kit.config.faults.option_places import Place, option_places
from xformer_kit.data.run_length import known_steps
from xformer_kit.optim.schedules import shortened
from xformer_kit.plan import CARRIED, KINDS, STACKS, Node, StackPlan, as_node, stacks
from xformer_kit.registry import Context, Fault, Faults, Registry, format_value

# Places that are not only set by the user, but also by the choices of conf/model.
PRESET = tuple(f"model.{stack}.mask" for stack in STACKS)
# Kind -> what a layer without a component of the kind lacks.
LACKING = {
    "attn": "an attention",
    "kernel": "an attention",
    "ffn": "a feed-forward network",
    "norm": "a norm",
    "mask": "an attention to its own stack",
    "position": "an attention to its own stack",
}


class OptionValue(NamedTuple):
    value: Any
    default: Any  # the value if the place did not set it


class UnusedOption(NamedTuple):
    """An option that a place of the config sets and no layer uses."""

    place: Place
    key: str  # option, of a nested component too: score.softcap; "name" for the component itself
    value: OptionValue
    reason: Fault | None  # the fault of a component that has the option; None if none has it


def unused_option_faults(
    config: Node, plans: Sequence[StackPlan], refused: Refusals = MappingProxyType({})
) -> Faults:
    """Yields the fault of each option without effect; refused: what components yield in
    `cannot`.
    """
    yield from _unused_layout_faults(config, plans)
    for place, key, (value, default), reason in find_unused(
        config, option_places(config, plans, refused)
    ):
        # A shared component always has the option, a difference need not.
        last = f"it {format_value(default)}" if place.path == place.kind else "it out"
        rule, got = _unused_rule(place), format_value(value)
        fault = reason or Fault("", rule, got=got, fix=f"Leave {last}.")
        path = "" if key == "name" else key.removesuffix(".name")
        yield replace(fault, path=path).at(place.path)


def _unused_layout_faults(config: Node, plans: Sequence[StackPlan]) -> Faults:
    """Yields the fault of each stack's layout if all its layers are of variants with their own."""
    for plan in plans:
        stack = config["model"][plan.name] or {}
        variants = {"base": {}} | (stack.get("variants") or {})
        if stack.get("layout") and all(
            (variants[block.variant] or {}).get("layout") for block in plan.blocks
        ):
            yield Fault(
                f"model.{plan.name}.layout",
                "no layer uses it, because each variant has its own",
                got=stack["layout"],
                fix="Leave it out.",
            )


def find_unused(config: Node, places: Iterable[Place]) -> Iterator[UnusedOption]:
    """Yields each option that no layer uses; places: the config's `option_places`."""
    for place in places:
        if any(one.node == place.node and not one.unused for one in place.components):
            continue  # a layer uses all of it, which is the most frequent case
        own = _option_values(place.kind, place.node, place.base)
        chosen = {
            key: value
            for key, value in own.items()
            if key.partition(".")[0] in place.options
            and (place.path not in PRESET if key == "name" else value.value != value.default)
        }
        components = place.components if chosen else ()
        nodes = [(one, _option_values(place.kind, one.node)) for one in components]
        for key, value in chosen.items():
            having = [one for one, values in nodes if _has_same_value(own, key, values)]
            if having and all(key in one.unused for one in having):
                yield UnusedOption(place, key, value, having[0].unused[key])
            elif not having and _default_is_valid(config, place, key, value.default):
                yield UnusedOption(place, key, value, None)


def unused_overrides(config: Node, keys: Iterable[str]) -> Faults:
    """Yields the faults of overrides of the command line that the run of a valid config would not
    use; keys: those that the overrides set.

    Values of defaults and of experiments are no faults: only what is set for this run must have an
    effect.
    """
    unread = list(unread_key_faults(config))
    unused = list(unused_components(option_places(config, stacks(config))))
    for key in dict.fromkeys(keys):
        inside = [fault for fault in unread if f"{key}.".startswith(f"{fault.path}.")]
        chosen = [fault for fault in unused if fault.path == key.removesuffix(".name")]
        yield from (replace(fault, path=key) for fault in (*inside[:1], *chosen))
        if key == "schedule.warmup":
            yield from _warmup_faults(config, known_steps(config))
        if key == "schedule.restarts":
            yield from _restart_faults(config, known_steps(config))
        if key == "trainer.checkpoint_every":
            yield from _checkpoint_faults(key, config["trainer"])


def _checkpoint_faults(key: str, trainer: Node) -> Faults:
    """Yields the fault of steps between checkpoints of a run that writes none."""
    steps = trainer.get("checkpoint_every")
    if steps is not None and not trainer.get("enable_checkpointing", True):
        rule = "has no effect, because trainer.enable_checkpointing=false writes no checkpoint"
        yield Fault(key, rule, got=steps, fix="Leave it out.")


def _warmup_faults(config: Node, steps: int | None) -> Faults:
    """Yields the fault of a warm-up that does not end before the run; steps: optimizer steps of the
    run, None if unknown.
    """
    warmup = as_node(config["schedule"]).get("warmup", 0)
    if steps is not None and isinstance(warmup, int) and warmup >= steps:
        yield Fault(
            "schedule.warmup",
            "must be below the steps of the run, or the learning rate never reaches optim.lr",
            got=f"{warmup:,} and {steps:,}",
            fix=f"Try schedule.warmup={shortened(warmup, steps)}.",
        )


def _restart_faults(config: Node, steps: int | None) -> Faults:
    """Yields the fault of cycles of less than two steps, the first at the peak; steps: as above."""
    restarts = as_node(config["schedule"]).get("restarts", 0)
    if steps is not None and (most := max(0, steps // 2 - 1)) < restarts:
        rule = "must leave two steps for each cycle of the run"
        yield Fault("schedule.restarts", rule, f"{restarts:,} and {steps:,}", f"Try {most}.")


def unused_components(places: Iterable[Place]) -> Faults:
    """Yields the fault of each component that no layer has, of those that a default may have
    chosen; places: the config's `option_places`.
    """
    for place in places:
        may_be_default = place.path == place.kind or (
            "name" in place.options and place.path in PRESET
        )
        names = [component.node["name"] for component in place.components]
        if may_be_default and place.node["name"] not in names:
            yield Fault(place.path, _unused_rule(place), fix="Leave it out.")


def _option_values(kind: str, node: Node, base: Node | None = None) -> dict[str, OptionValue]:
    """Returns {option: (value, default)} of a node, nested options too: name, heads, score.name,
    score.softcap, ...; the default is the value in `base`, if that is the same component.
    """
    same = base is not None and base["name"] == node["name"]
    base_values = _option_values(kind, base) if same else {}
    return dict(_nested_values(KINDS[kind], node, base_values))


def _nested_values(
    registry: Registry,
    node: Any,
    base_values: Mapping[str, OptionValue],
    default_name: str = "",
    path: str = "",
) -> Iterator[tuple[str, OptionValue]]:
    """Yields (option, values) of a component and of those nested in it; path: of its node, with a
    dot at its end.
    """
    node = registry.complete(node)
    base_name = base_values.get(f"{path}name")
    same = not path or (base_name is not None and base_name.value == node["name"])
    inner, defaults = registry.inner(node["name"]), registry.defaults(node["name"])
    defaults["name"] = default_name
    for key, value in node.items():
        default, option = defaults.get(key), f"{path}{key}"
        if key in inner and value is not None:
            name = (inner[key].as_node(default) or {"name": "none"})["name"]
            yield from _nested_values(inner[key], value, base_values, name, f"{option}.")
        else:
            base = base_values.get(option) if same else None
            yield option, OptionValue(value, base.value if base else default)


def _has_same_value(
    own: Mapping[str, OptionValue], key: str, other: Mapping[str, OptionValue]
) -> bool:
    """Whether a layer's component has this option from a place: the same value, in the same
    enclosing components.
    """
    words, keys = key.split("."), [key]
    if key not in CARRIED:
        keys += [".".join((*words[:depth], "name")) for depth in range(len(words))]
    return all(one in other and other[one].value == own[one].value for one in keys)


def _unused_rule(place: Place) -> str:
    """Returns why no layer uses the component of a place."""
    if place.components:
        return f"no {place.layers} uses it, because each has its own"
    if place.layers.startswith("cross") and place.kind != "norm":
        return f"there is no {place.layers}"
    return f"no {place.layers} has {LACKING[place.kind]}"


def _default_is_valid(config: Node, place: Place, key: str, default: Any) -> bool:
    """Whether the option could be left at its default; True, without a check, for names and options
    of nested components.
    """
    if "." in key or key == "name":
        return True
    context = Context(dim=config["model"]["dim"])
    return not any(KINDS[place.kind].faults({**place.node, key: default}, place.path, context))
