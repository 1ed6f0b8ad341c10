"""Attentions in an ejected file."""

from typing import Any

from xformer_kit.attention.differential import Differential
from xformer_kit.attention.first_steps import Dot, Mean
from xformer_kit.attention.gated_delta import GatedDelta
from xformer_kit.attention.latent import Latent
from xformer_kit.attention.linear import LinearAttention
from xformer_kit.attention.multi_head import MultiHead
from xformer_kit.eject.multi_head import multi_head
from xformer_kit.eject.norms import norm_text
from xformer_kit.eject.recurrent import gated_delta, linear
from xformer_kit.eject.tables import Around, Tables, Text
from xformer_kit.eject.writer import Writer, refused
from xformer_kit.plan import SublayerPlan

PLAIN = {"score": "softmax", "position": ""}  # flags of the softmax of products


def attention(w: Writer, sub: SublayerPlan, module: Any, around: Around) -> Text:
    """Returns the text of an attention. Raises ConfigError for one that has no template."""
    if sub.component["name"] == "short_conv" and not around.padded:
        w.part("short_convolution", "ShortConvolution")
        values = {"conv": module.conv.width}
        return Text(w.call(w.part("short_conv", "GatedConvolution", values), values))
    if type(module) not in WRITERS:
        raise refused("attn", sub.component["name"])
    if type(module) is not MultiHead and "scores" in around.position.enters:
        raise refused("position", sub.position["name"])
    return WRITERS[type(module)](w, sub, module, around)


def _latent(w: Writer, sub: SublayerPlan, module: Latent, around: Around) -> Text:
    norm = norm_text(w, module.kv_norm, "norm", "latent_eps")
    rotated = module.rope_head_dim
    values: dict[str, Any] = {
        "heads": sub.context.attn.heads,
        "head_dim": module.head_dim,
        **({"rope_head_dim": rotated} if rotated else {}),
        "v_head_dim": module.v_head_dim,
        "kv_rank": module.kv_rank,
        **({} if module.q_down is None else {"q_rank": module.q_down.out_features}),
        **({"dropout": module.dropout} if module.dropout else {}),
        **norm.values,
    }
    scale = module.scale * around.position.score_gain()
    if scale != (module.head_dim + rotated) ** -0.5:
        values["scale"] = scale
    bias = module.kv_down.bias is not None
    tables = Tables(w, ("latent", bias, tuple(values)), around, rotated, "rope_head_dim")
    flags = {"bias": bias, "norm": norm.pattern, **PLAIN}
    name = w.part("latent", "LatentAttention", values, **flags, **tables.flags)
    return tables.text(w.call(name, values))


def _differential(w: Writer, sub: SublayerPlan, module: Differential, around: Around) -> Text:
    heads, d = sub.context.attn.heads, module.head_dim
    values: dict[str, Any] = {
        "heads": heads,
        "head_dim": d,
        **({} if module.kv_heads == heads else {"kv_heads": module.kv_heads}),
        **({} if module.scale == d**-0.5 else {"scale": module.scale}),
        **({"dropout": module.dropout} if module.dropout else {}),
        "head_eps": module.eps,
    }
    own: dict[str, Any] = {"bias": module.o.bias is not None, "weight": module.weight is not None}
    tables = Tables(w, ("differential", repr(own), tuple(values)), around, d)
    texts = [text for text in tables.types if not text.startswith("rope")]
    own["names_of"] = "".join(f", {text.partition(':')[0]}" for text in texts)
    own["attend_of"] = "".join(f", {text}" for text in texts)
    used = w.part("differential", "Differential", values, **own, **PLAIN, **tables.flags)
    return tables.text(w.call(used, values, ", depth"))


def _unprojected(w: Writer, sub: SublayerPlan, module: Any, around: Around) -> Text:
    mean = type(module) is Mean
    values = {"dropout": module.dropout} if module.dropout else {}
    if not mean and module.scale != module.dim**-0.5:
        values["scale"] = module.scale
    tables = Tables(w, ("unprojected", mean, tuple(values)), around, module.dim)
    name = "Mean" if mean else "Dot"
    used = w.part("unprojected", name, values, mean=mean, **PLAIN, **tables.flags)
    return tables.text(w.call(used, values))


WRITERS: dict[type, Any] = {
    MultiHead: multi_head,
    Latent: _latent,
    Differential: _differential,
    LinearAttention: linear,
    GatedDelta: gated_delta,
    Mean: _unprojected,
    Dot: _unprojected,
}
