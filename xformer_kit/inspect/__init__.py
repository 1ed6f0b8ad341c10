"""Inspection of models: parameters, FLOPs, memory, the registered components, and pictures.

For notebooks (pip install "xformer_kit[study]"); each returns a picture that is shown, or kept with
`.save("name.png")`:

>>> from xformer_kit.inspect import attention_weights, plot_attention, plot_bias, plot_mask
>>> plot_mask({"name": "sliding_window", "window": 5}, length=16)
>>> plot_bias("alibi", length=32, heads=4, future=False)
>>> weights = attention_weights(model, ids, layers=[0, 3], heads=[0])  # "decoder.0.attn" -> (batch,
heads, queries, keys)
>>> plot_attention(weights, tokens=["I", "am", "here"], heads=[0])
>>> plot_curves(["outputs/decoder/2026-11-20_12-00-00", "outputs/decoder/2026-11-20_13-00-00"])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xformer_kit.inspect.lines import plot_curves, plot_norms
    from xformer_kit.inspect.picture import Picture
    from xformer_kit.inspect.pictures import plot_attention, plot_bias, plot_mask
    from xformer_kit.inspect.weights import attention_weights

__all__ = [
    "Picture",
    "attention_weights",
    "plot_attention",
    "plot_bias",
    "plot_curves",
    "plot_mask",
    "plot_norms",
]
HOME = {
    "Picture": "picture",
    "attention_weights": "weights",
    "plot_attention": "pictures",
    "plot_bias": "pictures",
    "plot_curves": "lines",
    "plot_mask": "pictures",
    "plot_norms": "lines",
}


def __getattr__(name: str) -> Any:
    """Imported on first use: a report of a study is drawn in the same style without torch."""
    if name not in HOME:
        raise AttributeError(f"module 'xformer_kit.inspect' has no attribute '{name}'")
    return getattr(import_module(f"xformer_kit.inspect.{HOME[name]}"), name)
