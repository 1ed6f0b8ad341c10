"""Feed-forward networks in an ejected file."""

import re
from typing import Any

from xformer_kit.eject.activations import expression, name_of, product_lines
from xformer_kit.eject.norms import norm_text
from xformer_kit.eject.tables import Text
from xformer_kit.eject.writer import Writer, refused
from xformer_kit.ffn.dense import GLU, MLP, Dense
from xformer_kit.ffn.moe import MixtureOfExperts
from xformer_kit.ffn.router import SigmoidRouter, SoftmaxRouter
from xformer_kit.plan import SublayerPlan

ROUTERS = {SoftmaxRouter: "softmax", SigmoidRouter: "sigmoid"}


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
