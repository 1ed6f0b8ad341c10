"""Extras in an ejected file: they change the inputs of layers, or the values of attentions."""

from typing import Any

from xformer_kit.attention.multi_head import MultiHead
from xformer_kit.eject.writer import Writer, refused
from xformer_kit.model.stack import Stack
from xformer_kit.plan import StackPlan

JOINING = ("unet", "reinject")
KNOWN = (*JOINING, "value_residual", "token_shift")


def extra_modules(w: Writer, plan: StackPlan, stack: Stack, layers: str) -> dict[str, str]:
    """Returns the name of each extra that is a module -> the call that creates it. layers: the
    expression of the number of layers.
    """
    calls = {}
    for name, module in stack.extra.items():
        if name in JOINING:
            calls[name] = _joining(w, name, module, len(plan.blocks), layers)
        elif name == "value_residual":
            _check_values(plan, stack)
            calls[name] = _value_residual(w, plan, layers)
    return calls


def _joining(w: Writer, name: str, module: Any, count: int, layers: str) -> str:
    """The call of a module that joins inputs of layers."""
    join = w.part("join", "Join", way=w.extras[name]["way"])
    unet = name == "unet"
    first = count - count // 2 if unet else 1
    flags: dict[str, Any] = {"unet": unet, "join": join, "first": first, "layers": layers}
    return f"{w.part('joining', 'Skips' if unet else 'Reinjection', **flags)}(c)"


def _value_residual(w: Writer, plan: StackPlan, layers: str) -> str:
    """The call of the module that mixes values."""
    mix = w.extras["value_residual"]["mix"]
    kv_heads = w.value("kv_heads", plan.base.sublayers[0].context.attn.kv_heads)
    own: dict[str, Any] = {"kv_heads": kv_heads} if mix == "token" else {}
    mixed = w.part("mixed_values", "MixedValues", mix=mix, **own)
    return f"{w.part('value_residual', 'ValueResidual', mix=mix, mixed=mixed, layers=layers)}(c)"


def _check_values(plan: StackPlan, stack: Stack) -> None:
    """Raises ConfigError unless each layer has one attention to its own tokens, with values of the
    same shape.
    """
    shapes = set()
    for depth, block in enumerate(plan.blocks):
        own = [sub for sub in block.sublayers if sub.kind == "attn" and not sub.cross]
        modules = [getattr(stack.layers[depth], sub.name) for sub in own]
        if len(own) != 1 or type(modules[0]) is not MultiHead or not modules[0].own_keys:
            raise refused("extra.value_residual", block.variant)
        shapes.add((modules[0].kv_heads, modules[0].v_head_dim))
    if len(shapes) > 1 or plan.block_index != tuple(range(len(plan.blocks))):
        raise refused("extra.value_residual", plan.name)


def shifted(w: Writer, padded: bool) -> str:
    """Returns the expression of a sublayer's input h, as the extra token_shift changes it."""
    if "token_shift" not in w.extras:
        return "h"
    tokens = w.extras["token_shift"]["tokens"]
    name = w.part("shift", "shift", tokens=tokens, padded=padded)
    return f"{name}(h, places)" if padded else f"{name}(h)"


def place_table(w: Writer) -> str:
    """Returns the expression of the places of earlier tokens, which token_shift reads."""
    name = w.part("places", "previous_places")
    return f"None if real is None else {name}(real, {w.extras['token_shift']['tokens']})"
