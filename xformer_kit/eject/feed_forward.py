"""Feed-forward networks in an ejected file."""

import re
from typing import Any

from xformer_kit.eject.activations import expression, name_of, product_lines, scale_lines
from xformer_kit.eject.norms import norm_text
from xformer_kit.eject.tables import Text
from xformer_kit.eject.writer import Writer, refused
from xformer_kit.ffn.dense import GLU, MLP
from xformer_kit.ffn.expert_choice import ExpertChoice
from xformer_kit.ffn.moe import MixtureOfExperts
from xformer_kit.ffn.router import SigmoidRouter, SoftmaxRouter
from xformer_kit.ffn.routes import ROUTERS as ROUTER_NAMES
from xformer_kit.plan import SublayerPlan

ROUTERS = {SoftmaxRouter: "softmax", SigmoidRouter: "sigmoid", ExpertChoice: "expert_choice"}


def feed_forward(w: Writer, sub: SublayerPlan, module: Any) -> Text:
    """Returns the text of a feed-forward network. Raises ConfigError if it has no template."""
    if type(module) is MixtureOfExperts:
        takes = ("real",) if type(module.router) is ExpertChoice else ()
        return Text(_experts(w, module), takes)
    return Text(_dense(w, module, sub.component["name"]))


def _dense(w: Writer, module: Any, name: str) -> str:
    lines = _activation(w, module, name)
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
        "scaled": module.scales is not None,
    }
    own = "FeedForward" if type(module) is not GLU else "GatedFeedForward"
    return w.call(w.part("dense", own, values, **flags), values)


def _activation(w: Writer, module: Any, name: str) -> list[str]:
    """The lines that compute h from the outputs of the input projections."""
    product = module.product if type(module) is GLU else None
    lines = [] if module.scales is None else scale_lines(product)
    if type(module) is MLP:
        return [*lines, f"h = {expression(name_of(module.activation), 'up')}"]
    if product is not None:
        return [*lines, *product_lines(w, product)]
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
        raise refused("ffn.router", ROUTER_NAMES.name_of(type(router)))
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
        "networks": _networks(w, experts),
        "router": ROUTERS[type(router)],
        "router_bias": router.bias is not None,
        "shared": shared,
        "shared_gate": module.shared_gate is not None,
        "correction": False,
    }
    if experts.inner_norm is not None:
        text = norm_text(w, experts.inner_norm, "norm")
        flags["norm"], values = text.pattern, values | text.values
    if type(router) is not ExpertChoice:
        flags |= _token_choice(router, values)
    return w.call(w.part("experts", "MixtureOfExperts", values, **flags), values)


def _networks(w: Writer, experts: Any) -> str:
    """Writes the class of all experts of a mixture, and returns its name."""
    bias = experts.down.bias is not None
    return w.part(
        "expert_networks",
        "Experts",
        gated=type(experts) is GLU,
        linear=w.part("expert_linear", "ExpertLinear", bias=bias),
        activation=tuple(_activation(w, experts, "")),
        scaled=experts.scales is not None,
        inner_norm=experts.inner_norm is not None,
        dropout=experts.dropout,
    )


def _token_choice(router: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The flags of a router that selects the experts of each token."""
    if router.capacity is not None:
        raise refused("ffn.router.capacity", router.capacity)
    if router.grouping.group_limit < router.grouping.groups:
        values |= {"groups": router.grouping.groups, "group_limit": router.grouping.group_limit}
    return {
        "router_scale": router.scale,
        "correction": router.correction_bias is not None,
        "renormalise": router.renormalise,
        "top2": router.grouping.group_score == "top2",
    }
