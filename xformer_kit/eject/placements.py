"""Placements in an ejected file."""

from typing import Any

from xformer_kit.eject.norms import norm_text
from xformer_kit.eject.writer import Writer, refused
from xformer_kit.placement import PLACEMENTS

FORMULAS = {
    "pre": "x + f(norm(x))",
    "post": "norm(x + f(x))",
    "sandwich": "x + norm(f(norm(x)))",
    "output": "x + norm(f(x))",
    "pre_and_sum": "norm(x + f(norm(x)))",
    "none": "x + f(x)",
    "deepnorm": "norm(alpha x + f(x))",
    "layer_scale": "x + weight * f(norm(x))",
    "ngpt": "unit(x + alpha (unit(f(x)) - x))",
}


def placement(
    w: Writer, module: Any, parallel: int, dropout: float, multipliers: set[float]
) -> tuple[str, bool]:
    """Returns (the call that creates a placement, whether it takes the layer's number)."""
    kind = PLACEMENTS.name_of(type(module)) or type(module).__name__
    if kind not in FORMULAS:
        raise refused("placement", kind)
    if parallel > 2:
        raise refused("model.decoder.layout", parallel)
    if len(multipliers) > 1:
        raise refused("model.residual_multiplier", sorted(multipliers))
    (multiplier,) = multipliers
    values: dict[str, Any] = {}
    values |= {"residual_dropout": dropout} if dropout else {}
    values |= {"residual_multiplier": multiplier} if multiplier != 1.0 else {}
    values |= {"alpha": module.alpha} if kind == "deepnorm" else {}
    children: Any = dict(module.named_children())
    norms = children.get("before", children.get("norm"))
    inner = norms[0] if hasattr(norms, "__len__") else norms
    pattern = None
    if inner is not None:
        text = norm_text(w, inner, "norm")
        pattern = text.pattern
        values |= text.values
    flags: dict[str, Any] = {"step_factor": None, "unit": ""}
    if kind == "ngpt":
        flags["unit"] = w.part("unit", "unit", eps=1e-6)
        flags["step_factor"] = module.steps[0].factor
    depth = kind == "pre" and module.norm.factor is not None
    residual = kind != "none" or module.has_residual
    name = w.part(
        "placement",
        "Residual",
        values,
        kind=kind,
        formula=FORMULAS[kind] if residual else "f(x)",
        parallel=parallel,
        norms_before=len(norms) if hasattr(norms, "__len__") else 1,
        plain=not dropout and multiplier == 1.0,
        norm=pattern,
        depth_scaled=depth,
        residual=residual,
        **flags,
    )
    return w.call(name, values, ", depth" if depth else ""), depth
