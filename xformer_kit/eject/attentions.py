"""Attentions in an ejected file."""

from typing import Any

from xformer_kit.attention.gated_delta import GatedDelta
from xformer_kit.attention.latent import Latent
from xformer_kit.attention.multi_head import MultiHead
from xformer_kit.eject.multi_head import multi_head
from xformer_kit.eject.norms import norm_text
from xformer_kit.eject.tables import Around, Tables, Text
from xformer_kit.eject.writer import Writer, refused
from xformer_kit.plan import SublayerPlan
from xformer_kit.position.rotary import Rotary


def attention(w: Writer, sub: SublayerPlan, module: Any, around: Around) -> Text:
    """Returns the text of an attention. Raises ConfigError for one that has no template."""
    if type(module) is MultiHead:
        return multi_head(w, sub, module, around)
    if type(module) is Latent:
        return _latent(w, sub, module, around)
    if type(module) is GatedDelta:
        return _gated_delta(w, sub, module, around)
    raise refused("attn", sub.component["name"])


def _latent(w: Writer, sub: SublayerPlan, module: Latent, around: Around) -> Text:
    if not module.rope_head_dim:
        raise refused("attn.rope_head_dim", 0)
    norm = norm_text(w, module.kv_norm, "norm")
    values: dict[str, Any] = {
        "heads": sub.context.attn.heads,
        "head_dim": module.head_dim,
        "rope_head_dim": module.rope_head_dim,
        "v_head_dim": module.v_head_dim,
        "kv_rank": module.kv_rank,
        **({} if module.q_down is None else {"q_rank": module.q_down.out_features}),
        **({"dropout": module.dropout} if module.dropout else {}),
        **norm.values,
    }
    scale = module.scale * around.position.score_gain()
    if scale != (module.head_dim + module.rope_head_dim) ** -0.5:
        values["scale"] = scale
    bias = module.kv_down.bias is not None
    tables = Tables(w, ("latent", bias, tuple(values)), around, module.rope_head_dim)
    if tables.flags["bias_table"] or around.cross:
        raise refused("position", sub.position["name"])
    flags = {"bias": bias, "norm": norm.pattern, "score": "softmax", "position": ""}
    name = w.part("latent", "LatentAttention", values, **flags, **tables.flags)
    return tables.text(w.call(name, values))


def _gated_delta(w: Writer, sub: SublayerPlan, module: GatedDelta, around: Around) -> Text:
    if isinstance(around.position, Rotary):
        raise refused("position", sub.position["name"])
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
        "tables_of": "",
    }
    if module.q_conv.width == 1:
        raise refused("attn.conv", 1)
    return Text(w.call(w.part("gated_delta", "GatedDelta", values, **flags), values))
