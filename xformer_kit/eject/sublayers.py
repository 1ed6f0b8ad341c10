"""Attentions and feed-forward networks in an ejected file."""

import re
from dataclasses import dataclass
from typing import Any

from xformer_kit.attention.gate import ConstantGate, ElementGate, HeadGate
from xformer_kit.attention.gated_delta import GatedDelta
from xformer_kit.attention.latent import Latent
from xformer_kit.attention.multi_head import MultiHead
from xformer_kit.attention.qk_norm import Direction as UnitLength
from xformer_kit.attention.qk_norm import EachHead, OverProjection, ScaledDirection
from xformer_kit.attention.score import SoftmaxScore
from xformer_kit.eject.activations import expression, name_of, product_lines
from xformer_kit.eject.norms import norm_text
from xformer_kit.eject.positions import rotary_calls
from xformer_kit.eject.writer import Writer, refused
from xformer_kit.ffn.dense import GLU, MLP, Dense
from xformer_kit.ffn.moe import MixtureOfExperts
from xformer_kit.ffn.router import SigmoidRouter, SoftmaxRouter
from xformer_kit.plan import SublayerPlan
from xformer_kit.position.content import Disentangled
from xformer_kit.position.rotary import Rotary

ROUTERS = {SoftmaxRouter: "softmax", SigmoidRouter: "sigmoid"}


@dataclass(frozen=True)
class Around:
    """What an attention's group has.

    mask: the tensor that is passed: "none"; "causal", none, because torch's function has the mask;
    "window", none if the text is not longer; or "tensor".
    """

    kernel: str
    position: Any
    mask: str
    sees_future: bool
    cross: bool


@dataclass(frozen=True)
class Text:
    """The constructor of a sublayer, and the tables that its forward takes, in order; absent: those
    that are None here.
    """

    call: str
    takes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def attention(w: Writer, sub: SublayerPlan, module: Any, around: Around) -> Text:
    """Returns the text of an attention. Raises ConfigError for one that has no template."""
    if type(module) is MultiHead:
        return _multi_head(w, sub, module, around)
    if type(module) is Latent:
        return _latent(w, sub, module, around)
    if type(module) is GatedDelta:
        return _gated_delta(w, sub, module, around)
    if sub.component["name"] == "short_conv":
        w.part("short_convolution", "ShortConvolution")
        values = {"conv": module.conv.width}
        return Text(w.call(w.part("short_conv", "GatedConvolution", values), values))
    raise refused("attn", sub.component["name"])


class Tables:
    """The tables that the forward of an attention's class takes.

    key: of the class, without its tables. channels: of a head, as the position sees them.
    """

    def __init__(self, w: Writer, key: Any, around: Around, channels: int, field: str = "head_dim"):
        rotate = None
        if isinstance(around.position, Rotary):
            rotate = rotary_calls(w, around.position, channels, field)[0]
        key = key, around.sees_future, around.cross
        masks = set(w.instances((key, "mask"), around.mask))
        rotates = set(w.instances((key, "rotate"), rotate))
        self.mask = masks.pop() if len(masks) == 1 else "tensor" if around.sees_future else "some"
        self.mask = "some" if self.mask == "window" else self.mask
        used = rotates - {None}
        self.rope: bool | str = rotate is not None
        if len(rotates) > 1 and len(used) == 1:
            self.rope, rotate_name = "some", used.pop()
        else:
            rotate_name = rotate or ""
        self.takes: list[str] = []
        self.types: list[str] = []
        self.absent: list[str] = []
        sdpa = around.kernel == "sdpa"
        if self.mask in ("some", "tensor"):
            none = around.mask == "causal" and sdpa
            optional = " | None" if self.mask == "some" or around.sees_future else ""
            name = "source_mask" if around.cross else "mask"
            self._take(name, f"mask: Tensor{optional}", none)
        if self.rope:
            optional = " | None" if self.rope == "some" else ""
            self._take("rope", f"rope: Rope{optional}", rotate is None)
        if not sdpa and "bias" in around.position.enters:
            self._take("bias", "bias: Tensor")
        if isinstance(around.position, Disentangled):
            self._take("table", "table: Tensor")
            self._take("row", "row: Tensor")
        if not sdpa and self.mask == "tensor" and around.sees_future:
            self.mask = "some"  # there is none without padding
        self.flags = {
            "mask": self.mask,
            "rope": self.rope,
            "rotate": rotate_name,
            "kernel": around.kernel,
            "cross": around.cross,
            "tables_of": "".join(f", {text}" for text in self.types),
            "bias_table": "bias" in self.takes,
        }

    def text(self, call: str) -> Text:
        """The text of an attention with these tables."""
        return Text(call, tuple(self.takes), tuple(self.absent))

    def _take(self, argument: str, text: str, absent: bool = False) -> None:
        self.takes.append(argument)
        self.absent += [argument] * absent
        self.types.append(text)


def _multi_head(w: Writer, sub: SublayerPlan, module: MultiHead, around: Around) -> Text:
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
        "clip_normed": module.clip_normed,
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
            if pattern not in (None, text.pattern):
                raise refused("attn.v_norm", over)
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


def _latent(w: Writer, sub: SublayerPlan, module: Latent, around: Around) -> Text:
    if not module.rope_head_dim:
        raise refused("attn.rope_head_dim", 0)
    norm = norm_text(w, module.kv_norm, "norm", "latent_eps")
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
    channels = module.rope_head_dim, "rope_head_dim"
    tables = Tables(w, ("latent", bias, tuple(values)), around, *channels)
    if tables.flags["bias_table"] or around.cross:
        raise refused("position", sub.position["name"])
    flags = {"bias": bias, "norm": norm.pattern}
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
    w.part("short_convolution", "ShortConvolution")
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


def feed_forward(w: Writer, sub: SublayerPlan, module: Any) -> Text:
    """Returns the text of a feed-forward network. Raises ConfigError if it has no template."""
    if type(module) is MixtureOfExperts:
        return Text(_experts(w, module))
    return Text(_dense(w, module, sub.component["name"]))


def _dense(w: Writer, module: Any, name: str) -> str:
    lines = _activation(module, name)
    values = {"width": module.width, **({"ffn_dropout": module.dropout} if module.dropout else {})}
    pattern = None
    if module.inner_norm is not None:
        text = norm_text(w, module.inner_norm, "norm")
        pattern, values = text.pattern, values | text.values
    short = ""
    if len(lines) == 1 and pattern is None and not module.dropout and name != "xielu":
        short = lines[0].removeprefix("h = ")
        short = re.sub(r"\b(gate|up)\b", r"self.\1(x)", short) if short.count("up") == 1 else ""
    flags: dict[str, Any] = {
        "short": short,
        "gated": type(module) is GLU,
        "bias": module.down.bias is not None,
        "inner_norm": pattern is not None,
        "norm": pattern,
        "activation": tuple(lines),
        "learned": name == "xielu",
    }
    own = "FeedForward" if type(module) is not GLU else "GatedFeedForward"
    return w.call(w.part("dense", own, values, **flags), values)


def _activation(module: Any, name: str) -> list[str]:
    """The lines that compute h from the outputs of the input projections."""
    if isinstance(module, Dense) and module.scales is not None:
        raise refused("ffn.scales", True)
    if type(module) is MLP:
        return [f"h = {expression(name_of(module.activation), 'up')}"]
    if type(module) is GLU:
        return product_lines(module.product, "ffn")
    if name == "xielu":
        return [
            "a, b = F.softplus(self.positive), self.beta + F.softplus(self.negative)",
            "below = (torch.expm1(torch.minimum(up, self.eps.to(up.dtype))) - up) * b",
            "h = torch.where(up > 0, a * up * up, below) + self.beta * up",
        ]
    raise refused("ffn", name)


def _experts(w: Writer, module: MixtureOfExperts) -> str:
    router: Any = module.router
    experts = module.experts
    if type(router) not in ROUTERS:
        raise refused("ffn.router", type(router).__name__)
    if router.capacity is not None:
        raise refused("ffn.router.capacity", router.capacity)
    if experts.inner_norm is not None or experts.dropout:
        raise refused("ffn.expert.inner_norm", True)
    shared = ""
    if module.shared is not None:
        kind = "glu" if type(module.shared) is GLU else "mlp"
        shared = _dense(w, module.shared, kind)
    values: dict[str, Any] = {
        "experts": router.experts,
        "top_k": module.top_k,
        "expert_width": experts.width,
    }
    flags: dict[str, Any] = {
        "gated": type(experts) is GLU,
        "bias": experts.down.bias is not None,
        "activation": tuple(_activation(experts, "")),
        "router": ROUTERS[type(router)],
        "router_bias": router.bias is not None,
        "router_scale": router.scale,
        "correction": router.correction_bias is not None,
        "renormalise": router.renormalise,
        "shared": shared,
        "shared_gate": module.shared_gate is not None,
        "top2": router.grouping.group_score == "top2",
    }
    if router.grouping.group_limit < router.grouping.groups:
        values |= {"groups": router.grouping.groups, "group_limit": router.grouping.group_limit}
    return w.call(w.part("experts", "MixtureOfExperts", values, **flags), values)
