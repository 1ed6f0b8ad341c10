"""muP: how factors depend on the width of a model (Yang et al., 2022, arXiv:2203.03466, table 8).

With m = model.dim / model.base_dim, logits are multiplied by 1 / m, and products of queries and
keys by m^-1/2 in addition to head_dim^-1/2 if head_dim grows with the width. Initial weights and
rates follow from the axes of parameters: xformer_kit/model/initial_weights.py,
xformer_kit/optim/create.py.
"""

from typing import Any

from xformer_kit.attention.qk_norm import QK_NORMS, QKNorm
from xformer_kit.registry import Node
from xformer_kit.registry.context import Context


def width_ratio(model: Node) -> float:
    """Returns m of the node `model`; 1 without muP."""
    if model.get("parametrization", "standard") == "standard" or not model.get("base_dim"):
        return 1.0
    return model["dim"] / model["base_dim"]


def with_output_multiplier(model: Node) -> Node:
    """Returns the node `model` with the factor on logits."""
    ratio, scale = width_ratio(model), model["logit_scale"]
    if ratio == 1.0 or scale == "learned":
        return model
    at_base = model["base_dim"] ** -0.5 if scale == "per_root_dim" else scale
    return {**model, "logit_scale": at_base / ratio}


def with_attention_multiplier(model: Node, component: Node, context: Context) -> Node:
    """Returns the node of an attention with its factor on scores, unless the node sets one, or the
    number of channels of a head.
    """
    ratio = width_ratio(model)
    grows = component.get("head_dim") is None and component.get("scale", 0) is None
    if ratio == 1.0 or not grows or not has_plain_scale(component):
        return component
    return {**component, "scale": context.attn.width**-0.5 * ratio**-0.5}


def has_plain_scale(component: Node) -> bool:
    """Whether the default factor on scores is a power of the channels of a head: norms of queries
    and keys may have another one.
    """
    node: Any = component.get("qk_norm")
    if node is None:
        return True
    return QK_NORMS[QK_NORMS.as_node(node)["name"]].scale is QKNorm.scale
