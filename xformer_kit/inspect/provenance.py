"""Where did each value come from? A component's own default, the command line, a YAML file, a stack
or a variant.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from xformer_kit.extra import EXTRAS
from xformer_kit.plan import KINDS, MULTIPLIER, STACKS, BlockPlan, StackPlan, as_node, base_nodes
from xformer_kit.registry import Node

DEFAULT = "default"
LINE = "command line"


class Value(NamedTuple):
    """One value of the config, and where it came from."""

    path: str  # as on the command line
    value: Any
    origin: str
    variant: str = "base"  # of which block


class Provenance:
    """What is known of where values came from.

    usual: defaults of the model's own options. given: keys of the command line. files: (what chose
    it, its content) of each YAML file that was chosen, the last one first. Where none of them says
    anything, a value that differs from its component's default comes from `source`.
    """

    def __init__(
        self,
        config: Node,
        usual: Node | None = None,
        given: Node | None = None,
        files: tuple[tuple[str, Node], ...] = (),
        source: str = "config",
    ):
        self.config = config
        self.usual = usual or {}
        self.given = given or {}
        self.files = files
        self.source = source

    def values(self, plans: list[StackPlan]) -> Iterator[Value]:
        """The shared components, then changes of stacks and variants, then the whole model."""
        shared = base_nodes(self.config)
        for kind, node in shared.items():
            for key, value in node.items():
                path = kind if key == "name" else f"{kind}.{key}"
                yield self._value(path, value, KINDS[kind].defaults(node["name"]).get(key))
        for plan in plans:
            for block in plan.variants.values():
                yield from self._differences(plan, block, shared)
        for name, options in (self.config.get("extra") or {}).items():
            yield from self._extra(name, options)
        for key, value in self.config["model"].items():
            if key not in STACKS:
                yield self._value(f"model.{key}", value, self.usual.get(key))

    def _extra(self, name: str, options: Node) -> Iterator[Value]:
        path, defaults = f"extra.{name}", EXTRAS.defaults(name)
        if not options:
            yield self._value(path, {}, None)
        for key, value in options.items():
            yield self._value(f"{path}.{key}", value, defaults.get(key))

    def _value(self, path: str, value: Any, default: Any) -> Value:
        return Value(path, value, self.origin(path, value, default))

    def origin(self, path: str, value: Any, default: Any) -> str:
        if path in self.given or f"{path}.name" in self.given:
            return LINE
        for name, content in self.files:
            if _sets(content, path):
                return name
        return DEFAULT if value == default or "." not in path else self.source

    def _differences(self, plan: StackPlan, block: BlockPlan, shared: Node) -> Iterator[Value]:
        base = plan.base
        before = shared if block is base else base.nodes
        variant = plan.name if block is base else f"{plan.name} {block.variant}"
        for kind, node in block.nodes.items():
            for key, value in node.items():
                if node["name"] == before[kind]["name"] and value == before[kind].get(key):
                    continue
                path = kind if key == "name" else f"{kind}.{key}"
                where = block.provenance.get(f"{kind}.{key}") or self._carried(kind, key, before)
                given = any(word.startswith(where) for word in self.given)
                yield Value(path, value, f"{where} ({LINE})" if given else where, variant)
        for sub in block.sublayers:
            usual = {**block.nodes[sub.kind], MULTIPLIER: 1.0}
            for key, value in {**sub.component, MULTIPLIER: sub.multiplier}.items():
                if value != usual.get(key):
                    yield Value(f"{sub.name}.{key}", value, f"{block.path}.layout", variant)

    @staticmethod
    def _carried(kind: str, key: str, before: Node) -> str:
        return (
            f"{kind}, carried over"
            if key in before[kind] and key in ("heads", "kv_heads", "head_dim")
            else DEFAULT
        )


def _sets(content: Node, path: str) -> bool:
    """Whether a YAML file sets a value, by its own keys or by overriding a group."""
    group, _, _ = path.partition(".")
    if path == group:
        for entry in content.get("defaults") or ():
            if isinstance(entry, Mapping) and any(
                str(k).removeprefix("override ").strip("/ ") == group for k in entry
            ):
                return True
        return isinstance(content.get(group), str) or "name" in as_node(content.get(group))
    here: Any = content
    for key in path.split("."):
        if not isinstance(here, Mapping) or key not in here:
            return False
        here = here[key]
    return True
