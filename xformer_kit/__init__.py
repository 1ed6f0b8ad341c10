"""Transformers from registered components: compose a config, build the model, load a run.

>>> from xformer_kit import build, compose
>>> config = compose(["model=decoder", "attn.heads=8", "position=alibi"])
>>> model = build(config, vocab_size=65)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xformer_kit.model.model import Model
    from xformer_kit.registry import ConfigError

__all__ = ["ConfigError", "build", "compose", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Imports ConfigError at its first use: `python -m xformer_kit` imports this file before it
    handles signals.
    """
    if name != "ConfigError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from xformer_kit.registry import ConfigError

    return ConfigError


def compose(overrides: "list[str] | tuple[str, ...]" = ()) -> dict[str, Any]:
    """The resolved, validated config of command-line overrides, e.g. ["model=decoder",
    "attn.heads=8"], as a plain dict.

    Raises ConfigError with every fault, one sentence each.
    """
    from xformer_kit.config import compose

    return compose(overrides)


def build(
    config: dict[str, Any], vocab_size: int | None = None, source_vocab_size: int | None = None
) -> "Model":
    """The model of a config, with the initial weights of its seed. `vocab_size` stands in for the
    tokenizer's, and `source_vocab_size` for that of a source with a vocabulary of its own.

    Raises ConfigError with every fault of the config, and if its model.vocab_size is another than
    `vocab_size`.
    """
    from xformer_kit.api import build

    return build(config, vocab_size, source_vocab_size)


def load(
    run: str, components: "list[str] | tuple[str, ...]" = (), checkpoint: "str | int" = "best"
) -> "Model":
    """The trained model of a run's directory, in evaluation mode, with its `tokenizer`.

    `components` are the files of the user's own components that the run was started with.
    `checkpoint` is best, last, or a step whose checkpoint the run kept. Raises ConfigError for a
    directory that is no run, for components or a checkpoint that are missing, and for checkpoints
    that cannot be read.
    """
    from xformer_kit.api import load

    return load(run, components, checkpoint)
