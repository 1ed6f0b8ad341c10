"""Activations in an ejected file: one expression of x, and the product of two halves."""

from xformer_kit.eject.writer import Writer
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


def product_lines(w: Writer, product: GatedProduct) -> list[str]:
    """Returns the lines that compute h from gate and up."""
    lines = []
    act, other = ("up", "gate") if product.activated == "up" else ("gate", "up")
    if product.clamp is not None:
        c = product.clamp
        lines.append(f"{act}, {other} = {act}.clamp(max={c}), {other}.clamp(-{c}, {c})")
    text = expression(product.activation, act)
    if product.soft_clamp is not None:
        bound, c = (float(value) for value in product.soft_clamp)
        tanhc = w.part("tanhc", "tanhc")
        lines.append(f"activated = {bracketed(text)} * {tanhc}({act} / {bound})")
        lines.append(f"{other} = {c} * torch.tanh({other} / {c})")
        text = "activated"
    if product.offset:
        if text != "activated":
            lines.append(f"activated = {text}")
        return [*lines, f"h = activated * ({other} + {product.offset})"]
    return [*lines, f"h = {bracketed(text)} * {other}"]


def bracketed(text: str) -> str:
    """The expression as a factor of a product."""
    return f"({text})" if " " in text.split("(")[0] else text


def scale_lines(product: GatedProduct | None) -> list[str]:
    """Returns the lines that multiply channels by learned factors, and activated ones by `root`."""
    if product is None:
        return ["up = up * (self.scales[0] * self.root)"]
    lines = ["gate = gate * self.scales[0]", "up = up * self.scales[1]"]
    at = 0 if product.activated == "gate" else 1
    lines[at] = f"{product.activated} = {product.activated} * (self.scales[{at}] * self.root)"
    return lines
