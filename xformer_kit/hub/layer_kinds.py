"""Layers that differ in several respects, such as a window and a network without experts.

A layer that differs in some of them is of a variant that is named after these, such as dense_local.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from xformer_kit.hub.common import KINDS, shortest_period
from xformer_kit.hub.keys import Values, refuse, unsupported

VARIANTS = "model.decoder.variants"


def layer_options(
    has: Mapping[str, Iterable[Any]], options: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the overrides of the layers of a decoder. has: respect -> whether each layer differs
    in it. options: respect -> option of a variant -> value, such as {local: {mask: {...}}}.
    """
    rows = zip(*has.values(), strict=True)
    names = ["_".join(n for n, differs in zip(has, row, strict=True) if differs) for row in rows]
    found: dict[str, Any] = {
        "model.decoder.first": None,
        VARIANTS: None,
        "model.decoder.pattern": shortest_period([name or "base" for name in names]),
    }
    for name in sorted({*names} - {""}):
        for respect in name.split("_"):
            found |= {f"{VARIANTS}.{name}.{key}": v for key, v in options[respect].items()}
    return found


def layers_with(values: Values, respect: str) -> list[bool]:
    """Returns whether each layer of a composition differs in a respect."""
    return [respect in variant.split("_") for variant in values["model.decoder.order"]]


def option_of(values: Values, respect: str, option: str) -> Any:
    """Returns an option of the layers that differ in a respect, such as mask.window; None if there
    are none.
    """
    order = values["model.decoder.order"]
    found = (variant for variant in order if respect in variant.split("_"))
    return next((values[f"{VARIANTS}.{variant}.{option}"] for variant in found), None)


WINDOW_KEYS = ("layer_types", "sliding_window")


def windows(
    config: Values, default: Callable[[Values], Sequence[bool]], size: int | None, *switch: str
) -> tuple[list[bool], dict[str, Any]]:
    """Returns whether each layer has a window, and the options of those that do. default: of a file
    without layer_types. size: tokens, of a file without them. switch: a key without which no layer
    has a window.
    """
    key = "layer_types"
    kinds = config.get(key)
    if kinds and (unknown := [kind for kind in kinds if kind not in KINDS]):
        raise unsupported(key, unknown[0], KINDS)
    has = [kind == "sliding_attention" for kind in kinds] if kinds else list(default(config))
    size = config.get("sliding_window", size) if all(config.get(one) for one in switch) else None
    if any(has) and not size:
        needed = f"{switch[0]}=true" if switch else "sliding_window"
        raise refuse(key, "sliding_attention", f"needs {needed}")
    return has, {"mask": {"name": "sliding_window", "window": size}}


def window_keys(values: Values, *switch: str) -> dict[str, Any]:
    """The same as keys of a config.json."""
    has, size = layers_with(values, "local"), option_of(values, "local", "mask.window")
    kinds = {own: kind for kind, own in KINDS.items()}
    return {
        "layer_types": [kinds["local" if one else "base"] for one in has],
        "sliding_window": size,
        **dict.fromkeys(switch, size is not None),
    }
