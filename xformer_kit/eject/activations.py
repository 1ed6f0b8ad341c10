"""Activations in an ejected file: one expression of x, and the product of two halves."""

from xformer_kit.eject.writer import refused
from xformer_kit.ffn.activations import ACTIVATIONS
from xformer_kit.ffn.dense import GatedProduct

EXPRESSIONS = {
    "relu2": "F.relu({}).square()",
    "gelu_tanh": 'F.gelu({}, approximate="tanh")',
    "gelu_quick": "{0} * torch.sigmoid(1.702 * {0})",
    "tanh": "torch.tanh({})",
    "sigmoid": "torch.sigmoid({})",
    "identity": "{}",
    "star_relu": "0.8944 * F.relu({}).square() - 0.4472",
    "smelu": "({0} + 2).clamp(0, 4).square() / 8 + F.relu({0} - 2)",
    "solu": "{0} * {0}.softmax(-1)",
}


def expression(activation: str, x: str) -> str:
    """Returns the expression of an activation of x."""
    return EXPRESSIONS.get(activation, f"F.{activation}({{}})").format(x)


def name_of(function: object) -> str:
    """Returns the name of an activation."""
    return next(name for name, known in ACTIVATIONS.items() if known is function)


def product_lines(product: GatedProduct, path: str) -> list[str]:
    """Returns the lines that compute h from gate and up."""
    if product.soft_clamp is not None:
        raise refused(f"{path}.soft_clamp", product.soft_clamp)
    lines = []
    act, other = ("up", "gate") if product.activated == "up" else ("gate", "up")
    if product.clamp is not None:
        c = product.clamp
        lines.append(f"{act}, {other} = {act}.clamp(max={c}), {other}.clamp(-{c}, {c})")
    if product.offset:
        lines.append(f"activated = {expression(product.activation, act)}")
        return [*lines, f"h = activated * ({other} + {product.offset})"]
    text = expression(product.activation, act)
    text = f"({text})" if " " in text.split("(")[0] else text
    return [*lines, f"h = {text} * {other}"]
