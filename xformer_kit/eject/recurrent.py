"""Attentions with a state in an ejected file."""

from typing import Any

from xformer_kit.attention.gated_delta import GatedDelta
from xformer_kit.attention.linear import MAPS, LinearAttention
from xformer_kit.eject.positions import rotary_calls
from xformer_kit.eject.tables import Around, Text
from xformer_kit.eject.writer import Writer, refused
from xformer_kit.plan import SublayerPlan
from xformer_kit.position.rotary import Rotary


def gated_delta(w: Writer, sub: SublayerPlan, module: GatedDelta, around: Around) -> Text:
    """Returns the text of an attention with the delta rule."""
    if around.padded:
        raise refused("model.encoder.attn", sub.component["name"])
    values = {
        "delta_heads": module.heads,
        "delta_v_heads": module.v_heads,
        "delta_head_dim": module.head_dim,
        "delta_v_head_dim": module.v_head_dim,
        "conv": module.q_conv.width,
        "delta_eps": module.eps,
    }
    flags = {
        "decay": module.alpha is not None,
        "gate": module.gate is not None,
        "negative": module.max_beta != 1.0,
        "grouped": module.heads != module.v_heads,
        **_rotation(w, around, module.head_dim),
    }
    if module.q_conv.width == 1:
        raise refused("attn.conv", 1)
    for template, name in (("short_convolution", "ShortConvolution"), ("wide", "wide")):
        w.part(template, name)
    call = w.call(w.part("gated_delta", "GatedDelta", values, **flags), values)
    return Text(call, ("rope",) if flags["rope"] else ())


def linear(w: Writer, sub: SublayerPlan, module: LinearAttention, around: Around) -> Text:
    """Returns the text of linear attention."""
    values: dict[str, Any] = {
        "linear_heads": module.heads,
        "linear_head_dim": module.head_dim,
        "linear_v_head_dim": module.v_head_dim,
        **({"linear_eps": module.eps} if module.normalise else {}),
    }
    padded = around.padded or around.cross
    flags: dict[str, Any] = {
        "map": next(name for name, phi in MAPS.items() if phi is module.map),
        "normalise": module.normalise,
        "bias": module.o.bias is not None,
        "causal": not around.sees_future and not around.cross,
        "cross": around.cross,
        "padded": padded,
        "wide": w.part("wide", "wide"),
        **_rotation(w, around, module.head_dim),
    }
    name = w.part("linear", "LinearAttention", values, **flags)
    takes = ("real",) * padded + ("rope",) * flags["rope"]
    return Text(w.call(name, values), takes)


def _rotation(w: Writer, around: Around, channels: int) -> dict[str, Any]:
    """The flags of a rotation of queries and keys."""
    if not isinstance(around.position, Rotary):
        return {"rope": False, "rotate": ""}
    return {"rope": True, "rotate": rotary_calls(w, around.position, channels)[0]}
