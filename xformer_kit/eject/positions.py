"""Positions in an ejected file."""

import math
from typing import Any

from xformer_kit.eject.writer import Writer, refused
from xformer_kit.position import POSITIONS
from xformer_kit.position.absolute import LearnedPosition, Sinusoidal
from xformer_kit.position.base import NoPosition
from xformer_kit.position.content import Disentangled, Shaw, TransformerXL
from xformer_kit.position.relative import T5, Alibi
from xformer_kit.position.rotary import Rotary
from xformer_kit.position.scaling import (
    DynamicScaling,
    LinearScaling,
    Llama3,
    LongRope,
    Unscaled,
    YaRN,
)


def rotary_calls(
    w: Writer, position: Rotary, head_dim: int, field: str = "head_dim"
) -> tuple[str, str]:
    """Returns the name of the function that rotates, and the call that computes its tables.

    field: name of the number of channels, if all are rotated.
    """
    axis, partial = (-1 if position.interleaved else -2), position.rotated_channels != head_dim
    flags: dict[str, Any] = {"interleaved": position.interleaved, "axis": axis}
    heads = position.rotated_heads
    rotate = w.part("rotate", "rotate", partial=partial, rotated_heads=heads, **flags)
    scaling = _scaling(position)
    tables = w.part("rotations", "rotations", **flags, **scaling)
    channels = w.value("rotated" if partial else field, position.rotated_channels)
    call = f"{tables}(position, {channels}, {w.value('theta', position.theta)})"
    return rotate, call


def _scaling(position: Rotary) -> dict[str, Any]:
    """The flags of the function that computes rates."""
    scaling: Any = position.scaling
    length, pairs = position.trained_len, position.rotated_channels // 2
    if type(scaling) is Unscaled:
        return {"scaling": "none", "gain": 1, "scaling_text": ""}
    if type(scaling) not in SCALINGS:
        raise refused("position.scaling", type(scaling).__name__)
    name, text, *options = SCALINGS[type(scaling)]
    found = {option: getattr(scaling, option) for option in options}
    found |= {key: list(value) for key, value in found.items() if isinstance(value, tuple)}
    if name != "linear":
        found["original"] = scaling.original or length
    if name == "dynamic":
        found["power"] = f"{2 * pairs} / {2 * pairs - 2}" if pairs > 1 else "1.0"
    if name == "yarn":
        found |= _ramp(scaling, position.theta, pairs, length)
    return {**found, "scaling": name, "gain": scaling.gain(length), "scaling_text": text}


# The name of a scaling in the template, its sentence, and the options that the template has.
SCALINGS: dict[type, tuple[str, ...]] = {
    LinearScaling: ("linear", "All rates are divided by a factor.", "factor"),
    Llama3: ("llama3", "Slow rates are divided by a factor.", "factor", "low", "high"),
    YaRN: ("yarn", "Slow rates are divided by a factor, with a ramp.", "factor"),
    LongRope: ("longrope", "Each rate is divided by a factor of its own.", "short", "long"),
    DynamicScaling: ("dynamic", "theta grows with the length of the text.", "factor"),
}


def _ramp(scaling: YaRN, theta: float, pairs: int, length: int) -> dict[str, float]:
    """Between which pairs the rates of YaRN are mixed."""
    low, high = (
        scaling.pair_index(beta, theta, pairs, length)
        for beta in (scaling.beta_fast, scaling.beta_slow)
    )
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    return {"first": low, "last": high + 0.001 if high == low else high}


def module_call(w: Writer, plan: Any, position: Any, dim: str, padded: bool) -> str | None:
    """Returns the call that creates the module of a position; None if it has none. dim: channels
    to which it is added. padded: whether texts may have padding.
    """
    kind, values, flags = type(position), dict[str, Any](), dict[str, Any]()
    node = plan.node
    if kind in (NoPosition, Rotary):
        return None
    if kind is LearnedPosition:
        template, name = "learned_position", "LearnedPosition"
        values = {"max_len": len(position.weight) - position.offset}
        values |= {"offset": position.offset} if position.offset else {}
        flags = {"dim": dim, **({} if position.offset else {"offset": 0})}
    elif kind is Sinusoidal:
        template, name = "sinusoidal", "Sinusoidal"
        values = {"theta": position.theta}
        flags = {key: node[key] for key in ("offset", "up_to_theta")}
        flags |= {"dim": dim, "concatenated": position.layout == "concatenated"}
    elif kind is Alibi:
        template, name = "alibi", "Alibi"
        values = {"heads": plan.heads}
        flags = {key: node[key] for key in ("slopes", "symmetric", "exponent")}
        flags["factor"] = None if node["factor"] == 1.0 else node["factor"]
    elif kind is T5:
        template, name = "t5_bias", "DistanceBias"
        values = {"buckets": position.buckets, "longest": position.longest, "heads": plan.heads}
        flags = {"bidirectional": position.bidirectional}
    elif kind is Disentangled:
        template, name = "disentangled", "DistanceTable"
        values = {"buckets": position.buckets}
        values |= {} if position.longest is None else {"longest": position.longest}
        flags = {"table_norm": node["norm"]}
    elif kind is Shaw:
        template, name = "shaw", "DistanceVectors"
        values = {"span": position.span, "head_dim": position.weight.shape[1]}
    elif kind is TransformerXL:
        template, name = "transformer_xl", "RelativeSinusoids"
        heads, head_dim = position.u.shape
        values = {"heads": heads, "head_dim": head_dim, "theta": position.theta}
        flags = {"padded": padded}
    else:
        raise refused("position", POSITIONS.name_of(kind) or kind.__name__)
    return w.call(w.part(template, name, values, **flags), values)
