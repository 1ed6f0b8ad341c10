"""Origin of each value of a config: a component's default, the command line, a YAML file, a stack
or a variant.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from xformer_kit.extra import EXTRAS
from xformer_kit.plan import KINDS, MULTIPLIER, STACKS, BlockPlan, StackPlan, as_node, base_nodes
from xformer_kit.registry import Node

DEFAULT = "default"
COMMAND_LINE = "command line"


class ConfigValue(NamedTuple):
    """One value of the config and its origin."""

    path: str  # as on the command line
    value: Any
    origin: str
    variant: str = "base"  # the stack, or the stack and the variant, that it belongs to


@dataclass(frozen=True)
class Provenance:
    """Determines the origins of the values of a config.

    defaults: defaults of the options of `model`. overrides: the command line's, by key. files:
    (choice, content) of each YAML file that was chosen, the last one first. source: the origin of
    other values that differ from their component's default.
    """

    config: Node
    defaults: Node = field(default_factory=dict)
    overrides: Node = field(default_factory=dict)
    files: tuple[tuple[str, Node], ...] = ()
    source: str = "config"

    def values(self, plans: list[StackPlan]) -> Iterator[ConfigValue]:
        """The shared components, then the differences of stacks and variants, then extras and the
        options of `model`.
        """
        shared = base_nodes(self.config)
        for kind, node in shared.items():
            defaults = KINDS[kind].defaults(node["name"])
            for key, value in node.items():
                yield self._value(_path(kind, key), value, defaults.get(key))
        for plan in plans:
            for block in plan.variants.values():
                yield from self._differences(plan, block, shared)
        for name, options in (self.config.get("extra") or {}).items():
            if not options:
                yield self._value(f"extra.{name}", {}, None)
            for key, value in options.items():
                yield self._value(f"extra.{name}.{key}", value, EXTRAS.defaults(name).get(key))
        for key, value in self.config["model"].items():
            if key not in STACKS:
                yield self._value(f"model.{key}", value, self.defaults.get(key))

    def _value(self, path: str, value: Any, default: Any) -> ConfigValue:
        return ConfigValue(path, value, self.origin(path, value, default))

    def origin(self, path: str, value: Any, default: Any) -> str:
        if path in self.overrides or f"{path}.name" in self.overrides:
            return COMMAND_LINE
        default_origin = DEFAULT if value == default or "." not in path else self.source
        return next((name for name, file in self.files if _sets(file, path)), default_origin)

    def _differences(
        self, plan: StackPlan, block: BlockPlan, shared: Node
    ) -> Iterator[ConfigValue]:
        """Values of a block that differ from the base block's, or of the base block from the shared
        components.
        """
        base = plan.base
        before = shared if block is base else base.nodes
        variant = plan.name if block is base else f"{plan.name} {block.variant}"
        for kind, node in block.nodes.items():
            for key, value in node.items():
                if node["name"] == before[kind]["name"] and value == before[kind].get(key):
                    continue
                origin = block.provenance.get(f"{kind}.{key}")
                if origin is None:
                    kept = key in before[kind] and key in ("heads", "kv_heads", "head_dim")
                    origin = f"{kind}, carried over" if kept else DEFAULT
                if any(key.startswith(origin) for key in self.overrides):
                    origin = f"{origin} ({COMMAND_LINE})"
                yield ConfigValue(_path(kind, key), value, origin, variant)
        for sub in block.sublayers:
            usual = {**block.nodes[sub.kind], MULTIPLIER: 1.0}
            for key, value in {**sub.component, MULTIPLIER: sub.multiplier}.items():
                if value != usual.get(key):
                    yield ConfigValue(f"{sub.name}.{key}", value, f"{block.path}.layout", variant)


def _path(kind: str, key: str) -> str:
    """The path of a component's option on the command line; that of its name is the kind."""
    return kind if key == "name" else f"{kind}.{key}"


def _sets(content: Node, path: str) -> bool:
    """Whether a YAML file sets a value, with its own keys or by an override of a group."""
    if "." not in path:
        groups = (
            str(key).removeprefix("override ").strip("/ ")
            for entry in content.get("defaults") or ()
            if isinstance(entry, Mapping)
            for key in entry
        )
        return path in groups or "name" in as_node(content.get(path))
    node = content
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return False
        node = node[key]
    return True
