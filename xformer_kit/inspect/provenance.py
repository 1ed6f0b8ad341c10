"""Where did each value come from? A part's own default, the command line, a YAML file, a stack or a
variant.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from xformer_kit.extra import EXTRAS
from xformer_kit.plan import KINDS, MULTIPLIER, STACKS, BlockPlan, StackPlan, as_node, base_nodes

DEFAULT = "default"
LINE = "command line"


class Value(NamedTuple):
    """One value of the config, and where it came from."""

    path: str  # as on the command line
    value: Any
    origin: str
    variant: str = "base"  # of which block


class Origins:
    """What is known of where values came from.

    usual: defaults of the model's own options. given: keys of the command line. files: (what chose
    it, its content) of each YAML file that was chosen, the last one first. Where none of them says
    anything, a value that differs from its part's default comes from `source`.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        usual: Mapping[str, Any] | None = None,
        given: Mapping[str, Any] | None = None,
        files: tuple[tuple[str, Mapping[str, Any]], ...] = (),
        source: str = "config",
    ):
        self.config = config
        self.usual = usual or {}
        self.given = given or {}
        self.files = files
        self.source = source

    def values(self, plans: list[StackPlan]) -> Iterator[Value]:
        """The shared parts, then what stacks and variants change, then the model as a whole."""
        shared = base_nodes(self.config)
        for kind, node in shared.items():
            for key, value in node.items():
                path = kind if key == "name" else f"{kind}.{key}"
                yield Value(
                    path,
                    value,
                    self.origin(path, value, KINDS[kind].defaults(node["name"]).get(key)),
                )
        for plan in plans:
            for block in plan.variants.values():
                yield from self._differences(plan, block, shared)
        for name, options in (self.config.get("extra") or {}).items():
            yield from self._extra(name, options)
        for key, value in self.config["model"].items():
            if key not in STACKS:
                yield Value(
                    f"model.{key}", value, self.origin(f"model.{key}", value, self.usual.get(key))
                )

    def _extra(self, name: str, options: Mapping[str, Any]) -> Iterator[Value]:
        path, defaults = f"extra.{name}", EXTRAS.defaults(name)
        if not options:
            yield Value(path, {}, self.origin(path, {}, None))
        for key, value in options.items():
            at = f"{path}.{key}"
            yield Value(at, value, self.origin(at, value, defaults.get(key)))

    def origin(self, path: str, value: Any, default: Any) -> str:
        if path in self.given or f"{path}.name" in self.given:
            return LINE
        for name, content in self.files:
            if _sets(content, path):
                return name
        return DEFAULT if value == default or "." not in path else self.source

    def _differences(
        self, plan: StackPlan, block: BlockPlan, shared: Mapping[str, Any]
    ) -> Iterator[Value]:
        base = plan.variants["base"]
        before = shared if block is base else base.nodes
        variant = f"{plan.name}" if block is base else f"{plan.name} {block.variant}"
        for kind, node in block.nodes.items():
            for key, value in node.items():
                if node["name"] == before[kind]["name"] and value == before[kind].get(key):
                    continue
                path = kind if key == "name" else f"{kind}.{key}"
                where = block.provenance.get(f"{kind}.{key}") or self._carried(kind, key, before)
                given = any(word.startswith(where) for word in self.given)
                yield Value(path, value, f"{where} ({LINE})" if given else where, variant)
        for group in block.groups:
            for sub in group:
                yield from self._of_layout(sub, block, variant)

    def _of_layout(self, sub: Any, block: BlockPlan, variant: str) -> Iterator[Value]:
        node = block.nodes[sub.kind]
        for key, value in sub.component.items():
            if value != node.get(key):
                yield Value(f"{sub.name}.{key}", value, f"{block.path}.layout", variant)
        if sub.multiplier != 1.0:
            yield Value(f"{sub.name}.{MULTIPLIER}", sub.multiplier, f"{block.path}.layout", variant)

    @staticmethod
    def _carried(kind: str, key: str, before: Mapping[str, Any]) -> str:
        return (
            f"{kind}, carried over"
            if key in before[kind] and key in ("heads", "kv_heads", "head_dim")
            else DEFAULT
        )


def _sets(content: Mapping[str, Any], path: str) -> bool:
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
