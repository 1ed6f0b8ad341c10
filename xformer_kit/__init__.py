"""Transformers from registered components: compose a config, build the model, load a run.

>>> from xformer_kit import build, compose
>>> config = compose(["model=decoder", "attn.heads=8", "position=alibi"])
>>> model = build(config, vocab_size=65)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xformer_kit.api import build, load
    from xformer_kit.config import compose
    from xformer_kit.registry import ConfigError
    from xformer_kit.with_loss import WithLoss

__all__ = ["ConfigError", "WithLoss", "build", "compose", "load"]
__version__ = "0.1.0"
MODULES = {
    "ConfigError": "registry",
    "WithLoss": "with_loss",
    "build": "api",
    "compose": "config",
    "load": "api",
}


def __getattr__(name: str) -> Any:
    """Imports what it returns at its first use: `python -m xformer_kit` imports this file before it
    handles signals.
    """
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"xformer_kit.{MODULES[name]}"), name)
