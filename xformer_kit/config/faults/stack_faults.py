"""Checks of a stack: its differences from the shared components, its variants and their layouts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xformer_kit.plan import (
    CROSS_DEFAULTS,
    KINDS,
    MULTIPLIER,
    SUBLAYERS,
    WITH_SUBLAYER,
    as_node,
    merge,
)
from xformer_kit.registry import (
    Context,
    Fault,
    Faults,
    Node,
    Options,
    above,
    format_value,
    mismatch,
    suggestion,
    unknown_option,
)

LAYER_KINDS = ("kernel", "placement")  # one of each per layer; a sublayer cannot set its own


def stack_faults(config: Node, stack: Any, path: str, context: Context) -> Faults:
    """Yields the faults of a stack's differences and layer order, and of its variants."""
    if stack is None:
        yield Fault(
            path,
            "must be a mapping of differences, {} where there are none",
            got="null",
            fix="Leave the key out for no stack.",
        )
    if not isinstance(stack, Mapping):
        return
    variants = stack.get("variants") or {}
    if isinstance(variants, Mapping):
        yield from _layer_order_faults(config, stack, ["base", *variants], path)
    else:
        variants = {}  # reported as a fault of its type
    yield from _Differences(config, (stack,), path, context).faults()
    for name, variant in variants.items():
        yield from _variant_faults(config, stack, name, variant, path, context)


def _layer_order_faults(config: Node, stack: Node, known: list[str], path: str) -> Faults:
    """Yields the faults of the lists of variants that set the order of the layers."""
    own = stack.get("layers")
    layers = config["model"].get("layers") if own is None else own
    for key in ("pattern", "first", "last"):
        names = stack.get(key)
        names = names if isinstance(names, list) else []
        for name in dict.fromkeys(name for name in names if isinstance(name, str)):
            if name not in known:
                rule = f"no variant is called '{name}'"
                yield Fault(f"{path}.{key}", rule, fix=suggestion(name, known))
        valid = type(layers) is int and layers > 0  # else reported as a fault of its own
        if key != "pattern" and valid and len(names) > layers:
            yield Fault(
                f"{path}.{key}",
                "must not be longer than the stack",
                got=f"{len(names)} and {layers} layers",
            )


def _variant_faults(
    config: Node, stack: Node, name: Any, variant: Any, path: str, context: Context
) -> Faults:
    """Yields the faults of a variant: of its name, its keys and its differences."""
    variant_path = f"{path}.variants.{name}"
    if not isinstance(name, str) or not name.isprintable() or not name:
        yield Fault(
            f"{path}.variants",
            "a variant's name must be a text of printable characters",
            got=format_value(name),
            fix="Try local.",
        )
    elif name == "base":
        rule = "'base' is the stack itself"
        yield Fault(variant_path, rule, fix="Give the variant another name.")
    elif not isinstance(variant or {}, Mapping):
        yield Fault(variant_path, "must be a mapping of differences", got=format_value(variant))
    else:
        allowed = (*KINDS, "layout", "cross")
        for key in variant or {}:
            if key not in allowed:
                paths = component_option_paths(config, variant_path)
                place = (variant_path, "settings", "variant")
                yield unknown_option(*place, key, allowed, paths, variant[key])
        yield from _Differences(config, (stack, variant or {}), variant_path, context).faults()


def component_option_paths(config: Node, path: str) -> dict[str, list[str]]:
    """Returns {option of the shared components: config paths at which the stack or variant at
    `path` sets its own}.
    """
    paths: dict[str, list[str]] = {}
    for kind, registry in KINDS.items():
        name = as_node(config.get(kind)).get("name")
        for option in registry.options(name) if name in registry else ():
            paths.setdefault(option, []).append(f"{path}.{kind}.{option}")
    return paths


@dataclass(frozen=True)
class _Differences:
    """The differences of a stack or of one of its variants."""

    config: Node
    nodes: tuple[Node, ...]  # the stack's differences; for a variant, then those of the variant
    path: str  # config path of the last one, whose faults are yielded
    context: Context

    def faults(self) -> Faults:
        """Yields the faults of the last differences, which apply on top of the earlier ones."""
        node = self.nodes[-1]
        for kind in KINDS:
            differences = [each.get(kind) for each in self.nodes]
            base = self.config.get(kind)
            yield from _faults_of_last(kind, base, differences, f"{self.path}.{kind}", self.context)
        # The type of a stack's `cross` is checked with its settings.
        cross = len(self.nodes) > 1 or isinstance(node.get("cross"), (str, Mapping))
        if cross and node.get("cross"):
            path = f"{self.path}.cross"
            if fault := self._source_fault(path):
                yield fault
            else:
                yield from self._sublayer_faults("cross", [], path)
        yield from self._layout_faults()

    def _source_fault(self, path: str, subject: str = "") -> Fault | None:
        """Returns the fault of a cross attention without an encoder to attend to; None if there is
        one.
        """
        has_encoder = "encoder" in self.config["model"]
        if has_encoder and ".encoder" not in self.path:
            return None
        without = "encoder" if has_encoder else "model"
        rule = f"{subject}attends to an encoder, and the {without} has none"
        return Fault(path, rule, fix="Leave it out.")

    def _layout_faults(self) -> Faults:
        """Yields the faults of the layout and of the differences of its sublayers."""
        layout, path = self.nodes[-1].get("layout"), f"{self.path}.layout"
        if layout is None:
            return
        if not isinstance(layout, list) or not layout:
            yield Fault(
                path,
                "must be a list of sublayers",
                got=format_value(layout),
                fix=f"Sublayers: {', '.join(SUBLAYERS)}.",
            )
            return
        if [] in layout:
            yield Fault(path, "an inner list runs sublayers in parallel and needs one", got="[]")
        groups = (group if isinstance(group, list) else [group] for group in layout)
        for entry in (entry for group in groups for entry in group):
            has_options = isinstance(entry, Mapping)
            word = next(iter(entry), None) if has_options and len(entry) == 1 else entry
            if not isinstance(word, str) or word not in SUBLAYERS:
                rule = f"no sublayer is called {format_value(entry)}"
                yield Fault(path, rule, fix=suggestion(word, SUBLAYERS))
            elif word == "cross" and (fault := self._source_fault(path, "'cross' ")):
                yield fault
            elif has_options:
                yield from self._sublayer_faults(word, [entry[word]], f"{path}.{word}")

    def _sublayer_faults(self, sublayer: str, in_layout: list[Any], path: str) -> Faults:
        """Yields the faults of a sublayer's last difference: of its component, and of the mask,
        position and norm of an attention. in_layout: its difference in a layout, if it has one.
        """
        kind, differences = "ffn" if sublayer == "ffn" else "attn", in_layout
        if sublayer == "cross":
            differences = [node["cross"] for node in self.nodes if node.get("cross")] + in_layout
        *earlier, last = (split_by_kind(difference, kind) for difference in differences)
        if MULTIPLIER in last:
            yield from _multiplier_faults(last[MULTIPLIER], bool(in_layout), path, self.context)
        for other in LAYER_KINDS:
            if other in last:
                fix = "Set it for the stack, or in a variant."
                got = format_value(last[other])
                yield Fault(f"{path}.{other}", "is of whole layers", got, fix)
        for other in (kind, *WITH_SUBLAYER[kind]):
            base, of_stack = self.config.get(other), [node.get(other) for node in self.nodes]
            if sublayer == "cross" and other in CROSS_DEFAULTS:
                base, of_stack = CROSS_DEFAULTS[other], []
            of_sublayer = [difference.get(other) for difference in (*earlier, last)]
            at = path if other == kind else f"{path}.{other}"
            yield from _faults_of_last(other, base, of_stack + of_sublayer, at, self.context)


def split_by_kind(difference: Any, kind: str) -> dict[str, Any]:
    """Returns {kind: difference of its component} of a sublayer's difference, with its multiplier;
    kind: of the sublayer's own component.
    """
    if not isinstance(difference, Mapping):
        return {kind: difference}
    others = (*WITH_SUBLAYER[kind], MULTIPLIER, *LAYER_KINDS)
    own = {key: value for key, value in difference.items() if key not in others}
    return {kind: own} | {key: difference[key] for key in others if key in difference}


def _multiplier_faults(value: Any, in_layout: bool, path: str, context: Context) -> Faults:
    """Yields the faults of a sublayer's multiplier, which only a layout may set."""
    option_path = f"{path}.{MULTIPLIER}"
    if not in_layout:
        yield Fault(option_path, "is of a place in a layout", fix="Set it there.")
    elif type_faults := list(mismatch(float, value, option_path, context)):
        yield from type_faults
    else:
        range_faults = above(Options(**{MULTIPLIER: value}), "Try 0.5.", **{MULTIPLIER: 0})
        yield from (fault.at(path) for fault in range_faults)


def _faults_of_last(
    kind: str, base: Any, differences: list[Any], path: str, context: Context
) -> Faults:
    """Yields the faults of the last of several differences from a component, if all before it are
    valid: their faults are reported at their own paths.
    """
    if differences[-1] is None or any(KINDS[kind].faults(base, path, context)):
        return
    faults, node = list[Fault](), KINDS[kind].complete(base)
    for difference in differences:
        if faults:
            return
        if difference is not None:
            faults = list(_difference_faults(kind, node, difference, path, context))
            node = node if faults else merge(kind, node, difference)
    yield from faults


def _difference_faults(
    kind: str, base: Node, difference: Any, path: str, context: Context
) -> Faults:
    """Yields the faults of a difference from the complete node `base`."""
    registry, node = KINDS[kind], as_node(difference)
    if not isinstance(difference, (str, Mapping)):
        yield Fault(path, "must be a mapping of options or a name", got=format_value(difference))
    elif (name := node.get("name", base["name"])) not in registry:
        yield registry.unknown(name).at(path)
    else:
        yield from registry.faults(merge(kind, base, node), path, context)
