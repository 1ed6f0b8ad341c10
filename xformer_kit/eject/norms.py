"""Norms in an ejected file."""

from typing import Any, NamedTuple

from xformer_kit.eject.writer import Writer, refused
from xformer_kit.norm.norms import DyT, L2Norm, LayerNorm, NoNorm, RMSNorm


class NormText(NamedTuple):
    """A norm's constructor, with DIM and EPS for its arguments, and its values."""

    pattern: str
    values: dict[str, Any]


def norm_text(w: Writer, norm: Any, path: str, eps: str = "eps") -> NormText:
    """Returns the text of a norm. eps: name of its value."""
    if type(norm) is NoNorm:
        return NormText("nn.Identity()", {})
    if type(norm) is LayerNorm and norm.offset is not None:
        name = w.part("layer_norm", "LayerNorm", bias=norm.bias is not None)
        return NormText(f"{name}(DIM, EPS)", {eps: norm.eps})
    if type(norm) is LayerNorm:
        affine, bias = norm.weight is not None, norm.bias is not None
        if bias and not affine:
            raise refused(f"{path}.weight", False)
        more = "" if bias else ", bias=False" if affine else ", elementwise_affine=False"
        return NormText(f"nn.LayerNorm(DIM, eps=EPS{more})", {eps: norm.eps})
    if type(norm) is RMSNorm:
        w.part("rms_norm", "RMSNormFunction")
        gain = "weight" if norm.weight is not None else "offset"
        gain = "none" if norm.weight is norm.offset is None else gain
        cast = norm.cast if gain != "none" else "after"
        return NormText(
            w.part("rms_norm_class", "RMSNorm", gain=gain, cast=cast) + "(DIM, EPS)",
            {eps: norm.eps},
        )
    if type(norm) is L2Norm:
        return NormText(w.part("l2_norm", "L2Norm") + "(EPS)", {"eps": norm.eps})
    if type(norm) is DyT:
        name = w.part("dynamic_tanh", "DynamicTanh", bias=norm.bias is not None)
        return NormText(f"{name}(DIM)", {})
    raise refused(path, type(norm).__name__)


def norm_call(w: Writer, norm: Any, path: str, dim: str) -> str:
    """Returns the call that creates a norm over `dim` channels outside of a part."""
    text = norm_text(w, norm, path)
    eps = w.value("eps", text.values["eps"]) if text.values else ""
    return text.pattern.replace("DIM", dim).replace("EPS", eps)
