"""What is wrong with a stack? Its differences from the shared components, its variants and their
layouts, word by word.
"""

import re
from collections.abc import Mapping
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

OF_LAYERS = ("kernel", "placement")  # which a sublayer does not have for itself


def faults(config: Node, stack: Any, path: str, context: Context) -> Faults:
    """A stack's own keys, its differences and those of its variants."""
    if stack is None:
        yield Fault(
            path,
            "must be a mapping of differences, {} where there are none",
            got="null",
            fix="Leave the key out for no stack.",
        )
        return
    if not isinstance(stack, Mapping):
        return
    variants = stack.get("variants") or {}
    own = stack.get("layers")
    layers = config["model"].get("layers") if own is None else own
    if isinstance(variants, Mapping):
        yield from _order(stack, ["base", *filter(is_name, variants)], layers, path)
    else:
        variants = {}  # its own fault says it
    yield from _differences(config, (stack,), path, context)
    for name, variant in variants.items():
        yield from _variant(config, stack, name, variant, path, context)


def _order(stack: Mapping, known: list[str], layers: Any, path: str) -> Faults:
    """Faults of the variants that a stack names for its layers."""
    for key in ("pattern", "first", "last"):
        words = stack.get(key)
        words = words if isinstance(words, list) else []
        for word in dict.fromkeys(word for word in words if isinstance(word, str)):
            if word not in known:
                yield Fault(
                    f"{path}.{key}", f"no variant is called '{word}'", fix=suggestion(word, known)
                )
        known_layers = type(layers) is int and layers > 0  # else its own fault says it
        if key != "pattern" and known_layers and len(words) > layers:
            yield Fault(
                f"{path}.{key}",
                "must not be longer than the stack",
                got=f"{len(words)} and {layers} layers",
            )


def _variant(
    config, stack: Mapping, name: Any, variant: Any, path: str, context: Context
) -> Faults:
    where = f"{path}.variants.{name}"
    if not is_name(name):
        yield Fault(
            f"{path}.variants",
            "a variant's name must be a text of printable characters",
            got=format_value(name),
            fix="Try local.",
        )
    elif name == "base":
        yield Fault(where, "'base' is the stack itself", fix="Give the variant another name.")
    elif not isinstance(variant or {}, Mapping):
        yield Fault(where, "must be a mapping of differences", got=format_value(variant))
    else:
        allowed = (*KINDS, "layout", "cross")
        for key in variant or {}:
            if key not in allowed:
                there = options(config, where)
                yield unknown_option(where, "settings", "variant", key, allowed, there)
        yield from _differences(config, (stack, variant or {}), where, context)


def options(config: Node, path: str) -> dict[str, list[str]]:
    """Options of the shared components -> how a stack or a variant at a path sets its own."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        for option in _shared(config, kind, ()) or ():
            found.setdefault(option, []).append(f"{path}.{kind}.{option}")
    found.pop("name", None)
    return found


def is_name(name: Any) -> bool:
    """Whether it can name a variant in a file and on a screen: half a surrogate pair can be saved
    in neither.
    """
    return isinstance(name, str) and bool(name) and name.isprintable()


def _layout(config, laid: tuple[Mapping, ...], path: str, context: Context) -> Faults:
    layout, here = laid[-1].get("layout"), f"{path}.layout"
    if layout is None:
        return
    if not isinstance(layout, list) or not layout:
        yield Fault(
            here,
            "must be a list of sublayers",
            got=format_value(layout),
            fix=f"Sublayers: {', '.join(SUBLAYERS)}.",
        )
        return
    if [] in layout:
        yield Fault(here, "an inner list runs sublayers in parallel and needs one", got="[]")
    for entry in (
        inner for outer in layout for inner in (outer if isinstance(outer, list) else [outer])
    ):
        word = next(iter(entry), None) if isinstance(entry, Mapping) and len(entry) == 1 else entry
        if not isinstance(word, str) or word not in SUBLAYERS:
            yield Fault(
                here,
                f"no sublayer is called {format_value(entry)}",
                fix=suggestion(word, SUBLAYERS),
            )
        elif word == "cross" and (who := _without_source(config, path)):
            yield Fault(
                here, f"'cross' looks at an encoder, and the {who} has none", fix="Leave it out."
            )
        elif isinstance(entry, Mapping):
            yield from _sublayer(config, laid, word, [entry[word]], f"{here}.{word}", context)


def _without_source(config: Node, path: str) -> str:
    """What has no encoder to attend to: the model, or the encoder itself; empty if neither."""
    if "encoder" not in config["model"]:
        return "model"
    return "encoder" if ".encoder" in path else ""


def _differences(config, laid: tuple[Mapping, ...], path: str, context: Context) -> Faults:
    """Faults of the last of the differences that lie over each other: a stack's, or those and a
    variant's.
    """
    node = laid[-1]
    for kind in KINDS:
        if kind in node:
            base = _shared(config, kind, laid[:-1])
            yield from _difference(kind, base, node[kind], f"{path}.{kind}", context)
    # Of another type, a stack's own fault says it.
    cross = len(laid) > 1 or isinstance(node.get("cross"), (str, Mapping))
    if cross and node.get("cross") and (who := _without_source(config, path)):
        yield Fault(
            f"{path}.cross", f"looks at an encoder, and the {who} has none", fix="Leave it out."
        )
    elif cross and node.get("cross"):
        yield from _sublayer(config, laid, "cross", [], f"{path}.cross", context)
    yield from _layout(config, laid, path, context)


def _sublayer(
    config, laid: tuple[Mapping, ...], word: str, own: list[Any], path: str, context
) -> Faults:
    """Faults of the last difference of a sublayer: of its component, and for an attention of what
    it looks through. `own`: what a layout gives it.
    """
    kind, differences = "ffn" if word == "ffn" else "attn", own
    if word == "cross":
        differences = [node["cross"] for node in laid if node.get("cross")] + own
    *below, last = (_apart(difference, kind) for difference in differences)
    if MULTIPLIER in last:
        yield from _multiplier(last[MULTIPLIER], bool(own), path, context)
    for other in OF_LAYERS:
        if other in last:
            where = path.partition(".layout.")[0].removesuffix(".cross")
            yield Fault(
                f"{path}.{other}",
                "is of whole layers",
                got=format_value(last[other]),
                fix=f"Say it at {where}.{other}, or in a variant.",
            )
    for other in (kind, *WITH_SUBLAYER[kind]):
        of_cross = CROSS_DEFAULTS.get(other) if word == "cross" else None
        base = of_cross or _shared(config, other, laid)
        for difference in below:
            base = _over(other, base, difference.get(other), context)
        if last.get(other) is not None:
            other_keys = (*WITH_SUBLAYER[kind], MULTIPLIER) if other == kind and own else ()
            where = path if other == kind else f"{path}.{other}"
            yield from _difference(other, base, last[other], where, context, other_keys)


def _apart(difference: Any, kind: str) -> dict[str, Any]:
    """What a sublayer's difference sets: of its component, of other kinds, and its multiplier."""
    if not isinstance(difference, Mapping):
        return {kind: difference}
    others = (*WITH_SUBLAYER[kind], MULTIPLIER, *OF_LAYERS)
    found = {key: value for key, value in difference.items() if key in others}
    return found | {kind: {key: value for key, value in difference.items() if key not in others}}


def _multiplier(value: Any, in_layout: bool, path: str, context: Context) -> Faults:
    here = f"{path}.{MULTIPLIER}"
    if not in_layout:
        yield Fault(
            here,
            "is of a place in a layout",
            fix=f"Say it there: {{cross: {{{MULTIPLIER}: {format_value(value)}}}}}.",
        )
    elif wrong := list(mismatch(float, value, here, context)):
        yield from wrong
    else:
        found = above(Options(**{MULTIPLIER: value}), "Try 0.5.", **{MULTIPLIER: 0})
        yield from (fault.at(path) for fault in found)


def _shared(config, kind: str, laid: tuple[Mapping, ...]) -> Mapping | None:
    """The shared component with the differences over it, as far as they are valid; None where the
    shared component itself is not.
    """
    base = as_node(config.get(kind))
    name = KINDS[kind].find_name(base.get("name")) if isinstance(base, Mapping) else None
    if name is None:
        return None  # its own fault says it
    base = KINDS[kind].complete({**base, "name": name})
    for node in laid:
        base = _over(kind, base, node.get(kind), Context())
    return base


def _over(kind: str, base: Mapping | None, difference: Any, context: Context) -> Mapping | None:
    """The difference laid over a node, or the node where it cannot be."""
    if not base or not difference or any(_difference(kind, base, difference, kind, context)):
        return base
    return merge(kind, base, difference)


def _difference(
    kind: str, base: Mapping | None, difference: Any, path: str, context, other_keys=()
) -> Faults:
    """Faults of one difference laid over what it differs from; `other_keys`: further keys that are
    valid in it too.
    """
    if base is None:
        return
    if not isinstance(difference, (str, Mapping)) and difference is not None:
        yield Fault(path, "must be a mapping of options or a name", got=format_value(difference))
        return
    difference = as_node(difference)
    if (name := difference.get("name", base["name"])) not in KINDS[kind]:
        yield KINDS[kind].unknown(name).at(path)
        if (name := KINDS[kind].find_name(name)) is None:
            return
        difference = {**difference, "name": name}
    merged = merge(kind, base, difference)
    found = list(KINDS[kind].faults(merged, path, context, other_keys))
    # Those of the base are reported at its own path; what they are about means nothing here.
    of_base = set(KINDS[kind].faults(base, path, context)) if found else set()
    if of_base:
        inside = (fault.path.removeprefix(f"{path}.") for fault in of_base)
        wrong = {re.split(r"[.[]", key)[0] for key in inside} - difference.keys()
        found = list(KINDS[kind].faults(merged, path, context, other_keys, wrong=wrong))
    yield from (fault for fault in found if fault not in of_base)
