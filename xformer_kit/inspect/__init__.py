"""Inspection of models: parameters, FLOPs, memory, the registered components, and plots.

For notebooks (pip install "xformer_kit[study]"); each plot function returns a picture, which a
notebook shows and `.save("name.png")` writes:

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
    from xformer_kit.inspect.attention_plots import plot_attention, plot_bias, plot_mask
    from xformer_kit.inspect.attention_record import attention_weights
    from xformer_kit.inspect.curves import plot_curves, plot_norms
    from xformer_kit.inspect.picture import Picture

__all__ = [
    "Picture",
    "attention_weights",
    "plot_attention",
    "plot_bias",
    "plot_curves",
    "plot_mask",
    "plot_norms",
]
MODULES = {
    "Picture": "picture",
    "attention_weights": "attention_record",
    "plot_attention": "attention_plots",
    "plot_bias": "attention_plots",
    "plot_curves": "curves",
    "plot_mask": "attention_plots",
    "plot_norms": "curves",
}


def __getattr__(name: str) -> Any:
    """Imports a name on first use; studies use `inspect.style` without importing torch."""
    if name not in MODULES:
        raise AttributeError(f"module 'xformer_kit.inspect' has no attribute '{name}'")
    return getattr(import_module(f"xformer_kit.inspect.{MODULES[name]}"), name)
