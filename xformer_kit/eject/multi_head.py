"""Multi-head attention in an ejected file."""

from typing import Any

from torch.nn import functional as F

from xformer_kit.attention.gate import (
    GATES,
    ConstantGate,
    ElementGate,
    HeadGate,
    LowRankLinear,
    ProjectedGate,
)
from xformer_kit.attention.multi_head import MultiHead
from xformer_kit.attention.qk_norm import Direction as UnitLength
from xformer_kit.attention.qk_norm import EachHead, OverGroups, OverProjection, ScaledDirection
from xformer_kit.attention.score import SCORES, SigmoidScore, SoftmaxScore
from xformer_kit.eject.norms import norm_text
from xformer_kit.eject.tables import Around, Tables, Text
from xformer_kit.eject.writer import Writer, refused
from xformer_kit.plan import SublayerPlan
from xformer_kit.position.content import Disentangled


def multi_head(w: Writer, sub: SublayerPlan, module: MultiHead, around: Around) -> Text:
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
        **_score(module, values),
        **_content(around),
        **_gate(w, module.gate),
        "bias": tuple(name for name in "qkvo" if _has_bias(getattr(module, name))),
        "keys": "own" if module.own_keys else "earlier",
        "exchange": module.exchange,
        "mixed": "value_residual" in w.extras and not around.cross,
        "by_layer": module.layer_factor is not None,
        "clip_normed": module.clip_normed,
    }
    tables = Tables(w, ("multi_head", repr(own), tuple(values)), around, module.head_dim)
    if module.exchange is not None or own["mixed"]:
        tables.take("earlier", "earlier: dict[str, Tensor]")
    if own["mixed"]:
        tables.take("mixed", "mixed: nn.Module")
    name = "CrossAttention" if around.cross else "Attention"
    used = w.part("attention", name, values, **own, **tables.flags)
    return tables.text(w.call(used, values, ", depth" if own["by_layer"] else ""))


def _has_bias(linear: Any) -> bool:
    return linear is not None and linear.bias is not None


def _norms(w: Writer, module: MultiHead, values: dict[str, Any]) -> dict[str, Any]:
    """The flags of the norms of queries, keys and values."""
    norms, pattern, unit = [], None, ""
    for name in ("q_norm", "k_norm", "v_norm"):
        norm = getattr(module, name)
        if norm is None or type(norm).__name__ == "Identity":
            continue
        over, inner = _over(norm)
        groups = norm.groups if over == "unit" else 1
        if isinstance(inner, OverGroups):
            groups, inner = inner.groups, inner.norm
            w.part("over_groups", "OverGroups")
        norms.append((name, over, groups))
        if inner is not None:
            text = norm_text(w, inner, "norm")
            if pattern not in (None, text.pattern):
                raise refused("attn.v_norm", over)
            pattern = text.pattern
            values |= text.values
        else:
            unit = w.part("unit", "unit", eps=1e-12)
    after = bool(norms) and module.norm_after_rotation
    return {"norms": tuple(norms), "norm": pattern, "norm_after": after, "unit": unit}


def _over(norm: Any) -> tuple[str, Any]:
    """Over which channels a norm of queries, keys or values is, and the norm of these."""
    if isinstance(norm, EachHead):
        return "each_head", norm[0]
    if isinstance(norm, OverProjection):
        return "projection", norm.norm
    if type(norm) in (UnitLength, ScaledDirection):
        return "unit", None
    return "head", norm


def _score(module: MultiHead, values: dict[str, Any]) -> dict[str, Any]:
    """The flag of the score function."""
    score = module.score
    if score is None:
        return {"score": "softmax"}
    if type(score) is SigmoidScore:
        values |= {} if score.bias is None else {"score_bias": score.bias}
        return {"score": "sigmoid"}
    if type(score) is not SoftmaxScore:
        raise refused("attn.score", SCORES.name_of(type(score)))
    if score.softcap is not None:
        values["softcap"] = score.softcap
    sinks = "sinks" if score.sink is not None else "softmax"
    return {"score": "plus_one" if score.plus_one else sinks}


def _content(around: Around) -> dict[str, Any]:
    """The flags of a position that computes scores."""
    position = around.position
    if not isinstance(position, Disentangled):
        return {"position": "relative" if "scores" in position.enters else ""}
    terms = position.content_to_position, position.position_to_content
    return {
        "position": "disentangled",
        "content_to_position": terms[0],
        "position_to_content": terms[1],
        "terms": 1 + sum(terms),
    }


GATE_KINDS = {HeadGate: "head", ElementGate: "element", ProjectedGate: "projected"}


def _gate(w: Writer, gate: Any) -> dict[str, str]:
    """The flags of a gate on the output of the heads: its kind, and its class unless it is one
    matrix.
    """
    if gate is None or type(gate) is ConstantGate:
        return {"gate": "" if gate is None else "constant", "gate_class": ""}
    if type(gate) not in GATE_KINDS:
        raise refused("attn.gate", GATES.name_of(type(gate)))
    kind = GATE_KINDS[type(gate)]
    maps = [one for one in (gate.input, gate.output) if one is not None]
    low_rank = isinstance(maps[0], LowRankLinear)
    silu = gate.activation is F.silu
    if not (low_rank or silu or gate.output is not None or gate.bias is not None):
        return {"gate": kind, "gate_class": ""}
    of = "both" if len(maps) == 2 else "input" if gate.output is None else "output"
    flags: dict[str, Any] = {
        "of": of,
        "low_rank": _low_rank(w, maps[0]) if low_rank else "",
        "activation": "silu" if silu else "sigmoid",
        "bias": gate.bias is not None,
    }
    return {"gate": kind, "gate_class": w.part("gate", "Gate", **flags)}


def _low_rank(w: Writer, linear: LowRankLinear) -> str:
    """Writes the class of a linear map of two matrices, and returns its name."""
    return w.part("low_rank", "LowRank", rank=linear.reduce.out_features, silu=linear.silu)
