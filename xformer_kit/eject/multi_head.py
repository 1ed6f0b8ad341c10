"""Multi-head attention in an ejected file."""

from typing import Any

from xformer_kit.attention.gate import ConstantGate, ElementGate, HeadGate
from xformer_kit.attention.multi_head import MultiHead
from xformer_kit.attention.qk_norm import Direction as UnitLength
from xformer_kit.attention.qk_norm import EachHead, OverProjection, ScaledDirection
from xformer_kit.attention.score import SoftmaxScore
from xformer_kit.eject.norms import norm_text
from xformer_kit.eject.tables import Around, Tables, Text
from xformer_kit.eject.writer import Writer, refused
from xformer_kit.plan import SublayerPlan
from xformer_kit.position.content import Disentangled


def multi_head(w: Writer, sub: SublayerPlan, module: MultiHead, around: Around) -> Text:
    if not module.own_keys:
        raise refused("attn.keys", "earlier")
    heads = sub.context.attn.heads
    values: dict[str, Any] = {"heads": heads, "head_dim": module.head_dim}
    if module.kv_heads != heads:
        values["kv_heads"] = module.kv_heads
    if module.v_head_dim != module.head_dim:
        values["v_head_dim"] = module.v_head_dim
    if module.factor != module.head_dim**-0.5:
        values["scale"] = module.factor
    if module.clip is not None:
        values["clip"] = module.clip
    if module.dropout:
        values["dropout"] = module.dropout
    own = {
        **_norms(w, module, values),
        **_score(module, sub, values),
        **_content(around, module, heads),
        "bias": tuple(name for name in "qkvo" if getattr(module, name).bias is not None),
        "gate": _gate(module.gate, sub),
        "by_layer": module.layer_factor is not None,
    }
    tables = Tables(w, ("multi_head", repr(own), tuple(values)), around, module.head_dim)
    name = "CrossAttention" if around.cross else "Attention"
    used = w.part("attention", name, values, **own, **tables.flags)
    return tables.text(w.call(used, values, ", depth" if own["by_layer"] else ""))


def _norms(w: Writer, module: MultiHead, values: dict[str, Any]) -> dict[str, Any]:
    """The flags of the norms of queries, keys and values."""
    norms, pattern, unit = [], None, ""
    for name in ("q_norm", "k_norm", "v_norm"):
        norm = getattr(module, name)
        if norm is None or type(norm).__name__ == "Identity":
            continue
        over, inner = _over(norm, f"attn.{name}")
        norms.append((name, over))
        if inner is not None:
            text = norm_text(w, inner, "norm")
            pattern = text.pattern
            values |= text.values
        else:
            unit = w.part("unit", "unit", eps=1e-12)
    after = bool(norms) and module.norm_after_rotation
    return {"norms": tuple(norms), "norm": pattern, "norm_after": after, "unit": unit}


def _over(norm: Any, path: str) -> tuple[str, Any]:
    """Over which channels a norm of queries, keys or values is, and the norm of these."""
    if isinstance(norm, EachHead):
        return "each_head", norm[0]
    if isinstance(norm, OverProjection):
        return "projection", norm.norm
    if type(norm) in (UnitLength, ScaledDirection):
        if norm.groups > 1:
            raise refused(f"{path}.groups", norm.groups)
        return "unit", None
    return "head", norm


def _score(module: MultiHead, sub: SublayerPlan, values: dict[str, Any]) -> dict[str, Any]:
    """The flags of the score function."""
    score = module.score
    if score is None:
        return {"sinks": False}
    if type(score) is not SoftmaxScore or score.plus_one:
        raise refused("attn.score", sub.component["score"])
    if score.softcap is not None:
        values["softcap"] = score.softcap
    return {"sinks": score.sink is not None}


def _content(around: Around, module: MultiHead, heads: int) -> dict[str, Any]:
    """The flags of a position that computes scores from a table."""
    position = around.position
    if not isinstance(position, Disentangled):
        return {"position": ""}
    if module.kv_heads != heads:
        raise refused("attn.kv_heads", module.kv_heads)
    terms = position.content_to_position, position.position_to_content
    return {
        "position": "disentangled",
        "content_to_position": terms[0],
        "position_to_content": terms[1],
        "terms": 1 + sum(terms),
    }


def _gate(gate: Any, sub: SublayerPlan) -> str:
    """The flag of a gate on the output of the heads."""
    if gate is None:
        return ""
    if type(gate) is ConstantGate:
        return "constant"
    plain = type(gate) in (HeadGate, ElementGate) and gate.output is None and gate.bias is None
    if not plain or sub.component["gate"] not in ("head", "element"):
        raise refused("attn.gate", sub.component["gate"])
    return "element" if type(gate) is ElementGate else "head"
