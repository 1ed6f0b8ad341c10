"""A composed config in which every component has its own name.

A config may use another name of a component, `position=rope`, `attn=mqa`. Saved configs, names of
runs and hashes have the own name, and the options that the other name implies.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hydra.core.override_parser.types import Override

from xformer_kit.config.line.exclusive_options import without_replaced
from xformer_kit.config.options.groups import GROUPS, MAPPING_GROUPS
from xformer_kit.config.options.logger_options import resolve_loggers
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.config.options.trainer_schema import OPTIONS as TRAINER
from xformer_kit.plan import KINDS, STACKS
from xformer_kit.registry import (
    ConfigError,
    Fault,
    Node,
    Option,
    Registry,
    complete_mapping,
    config_error,
    format_value,
    named_node,
    whole_number,
    with_own_names,
)

# Keys that only the command line has; a saved config holds none of them.
INSTRUCTIONS = ("components", "resume", "study")
PARTS_OF_BLOCK = KINDS | {"cross": KINDS["attn"]}  # keys of a stack, a variant and a sublayer


def own_config(
    config: Node,
    overrides: Iterable[Override],
    own: Collection[str] = (),
    over_source: bool = False,
) -> dict[str, Any]:
    """Returns a composed plain config with the components' own names, without instructions of the
    command line and without stacks that are null.

    overrides: those of the command line. A component that they choose replaces that of an
    experiment, including its options. own: the config paths that files of the user's own set.
    over_source: whether the config was composed over that of a model, init_from, which has all
    options of its components; those of another component are then left out.

    Raises ConfigError for an option that contradicts the name of its component, and for a name that
    is set over the options of another component.
    """
    plain = {key: value for key, value in config.items() if key not in INSTRUCTIONS}
    plain, faults = normalised_config(plain)
    for name, registry in MAPPING_GROUPS.items():
        if plain.get(name) is not None:
            plain[name] = complete_mapping(registry, plain[name])
    if isinstance(plain.get("model"), dict):
        null = [stack for stack in STACKS if plain["model"].get(stack, ...) is None]
        plain["model"] = {key: v for key, v in plain["model"].items() if key not in null}
    keys = {o.get_key_element().lstrip("+~") for o in overrides}
    if (files := config.get("components")) and "components" not in keys:
        rule = "are named by the line, or by the file of its experiment or study"
        raise config_error("components", rule, got=files, fix="Try components=[FILE].")
    if "logger" in plain:
        plain["logger"] = resolve_loggers(plain["logger"], keys)
    for group, registry in GROUPS.items():
        node = registry.as_node(plain.get(group))  # a file may have attn: linear
        if isinstance(node, Mapping) and node.get("name") in registry:
            left = _without_left(group, node, keys, set(own), None if over_source else faults)
            node = registry.defaults(node["name"]) | left
            plain[group] = with_own_names(registry, node, group, [])
    if faults:
        raise ConfigError(faults)
    return without_replaced(plain, keys | set(own))


def normalised_config(config: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Returns (config with own names, faults of options that contradict another name)."""
    faults: list[Fault] = []
    config = dict(config)
    for group, registry in GROUPS.items():
        if group in config:
            config[group] = with_own_names(registry, config[group], group, faults)
    for group, registry in MAPPING_GROUPS.items():
        if isinstance(node := config.get(group), Mapping):
            config[group] = _mapping(registry, node, group, faults)
    if isinstance(model := config.get("model"), Mapping):
        stacks = {s: _block(model[s], f"model.{s}", faults) for s in STACKS if s in model}
        config["model"] = {**model, **stacks}
    return _whole_numbers(config), faults


def _whole_numbers(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the config with integers for whole numbers that are written as floats, in the
    settings that are no component's options.
    """
    nodes = {name: SETTINGS.options(name) for name in SETTINGS if name != "run"}
    nodes["trainer"] = TRAINER
    found = _integers(SETTINGS.options("run"), config)
    for name, options in nodes.items():
        if isinstance(node := found.get(name), Mapping):
            found[name] = _integers(options, node)
    return found


def _integers(options: Mapping[str, Option], node: Node) -> dict[str, Any]:
    return {
        key: whole_number(options[key].type, value) if key in options else value
        for key, value in node.items()
    }


def _mapping(registry: Registry, node: Node, path: str, faults: list[Fault]) -> dict[str, Any]:
    """Returns a node {name: options} with own names. Appends to `faults` each component that the
    node has twice: under another name, or as the `name` in the options.
    """
    found: dict[str, Any] = {}
    keys: dict[Any, str] = {}  # own name -> key of the node
    for name, options in node.items():
        whole = {"name": name, **options} if isinstance(options, Mapping) else name
        node = with_own_names(registry, whole, f"{path}.{name}", faults)
        own = node["name"] if isinstance(node, Mapping) else node
        if options is not None and (first := keys.setdefault(own, name)) != name:
            rule = f"is the {registry.kind} '{own}', as {path}.{first} is; a run has one of each"
            fix = "Leave one out, or register a subclass of your own under another name."
            faults.append(Fault(f"{path}.{name}", rule, fix=fix))
        found[own] = (
            {key: value for key, value in node.items() if key != "name"}
            if isinstance(node, Mapping)
            else options
        )
    return found


def _block(node: Any, path: str, faults: list[Fault]) -> Any:
    """Returns a stack, a variant or a sublayer, with own names in its differences."""
    if not isinstance(node, Mapping):
        return node
    found = _integers(SETTINGS.options("model"), node)  # a stack's own layers
    for key, value in node.items():
        at = f"{path}.{key}"
        if key in PARTS_OF_BLOCK:
            found[key] = named_node(PARTS_OF_BLOCK[key], value, at, faults)
            if isinstance(found[key], Mapping):  # of a sublayer: its mask, position and norm
                found[key] = _block(found[key], at, faults)
        elif key == "variants" and isinstance(value, Mapping):
            found[key] = {name: _block(v, f"{at}.{name}", faults) for name, v in value.items()}
        elif key == "layout":
            found[key] = _layout(value, at, faults)
    return found


def _layout(node: Any, path: str, faults: list[Fault]) -> Any:
    """Returns a layout: a list of sublayers, and of lists of parallel ones."""
    if isinstance(node, (list, tuple)):
        return [_layout(item, f"{path}[{i}]", faults) for i, item in enumerate(node)]
    return _block(node, path, faults)


def _without_left(
    group: str, node: Node, keys: set[str], own_paths: set[str], faults: list[Fault] | None
) -> dict[str, Any]:
    """Returns a group's node without the options of a component that was replaced: of an
    experiment's by the command line, of a preset's by a file that overrides its choice. keys: those
    of the line; own_paths: those that files of the user's own set. Appends to `faults` that of a
    file that sets only the name of another component, so that the options of the group's choice are
    left over; None: they are those of a source.
    """
    registry, name = GROUPS[group], node["name"]
    settings = SETTINGS.options(group) if group in SETTINGS else {}
    on_line = {key.split(".")[1] for key in keys if key.startswith(f"{group}.")}
    own = registry.options(name).keys() | settings | on_line | {"name"}
    left = {key: value for key, value in node.items() if key not in own}
    every = {option for other in registry for option in registry.options(other)} if left else ()
    if group in keys:
        return {key: value for key, value in node.items() if key not in left.keys() & every}
    if left and faults is not None and (chosen := _chosen(registry, left, own)):
        faults.append(
            Fault(
                f"{group}.name",
                f"is set over the options of '{chosen}'",
                got=format_value(name),
                fix=f"Choose it with {group}={name}, in a file with"
                f" `defaults: [override /{group}: {name}]`.",
            )
        )
        return dict(node)
    kept = {key for key in left if key not in every or f"{group}.{key}" in own_paths}
    return {key: value for key, value in node.items() if key not in left or key in kept}


def _chosen(registry: Registry, left: Node, own: Collection[str]) -> str | None:
    """Returns the component of which the options `left` are all defaults but those in `own`."""
    for name in registry.loaded:
        defaults = registry.defaults(name)
        if {key: value for key, value in defaults.items() if key not in own} == left:
            return name
    return None
