"""The number of tokens of a config's vocabulary."""

from collections.abc import Mapping
from typing import Any

from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.objective import objective_of
from xformer_kit.registry import config_error


def vocabulary(config: Mapping[str, Any]) -> int:
    """Number of tokens: model.vocab_size, or the tokenizer's plus the task's special tokens.

    Raises ConfigError if neither is set and the tokenizer's size depends on the text.
    """
    if size := config["model"].get("vocab_size"):
        return size
    node = config["tokenizer"]
    size = node.get("vocab_size") or getattr(TOKENIZERS[node["name"]], "vocab_size", None)
    if isinstance(size, int):
        return size + len(objective_of(config).specials)
    raise config_error(
        "model.vocab_size",
        f"is not known before tokenizer '{node['name']}' has read the text",
        got="null",
        fix="Set it, e.g. model.vocab_size=1024.",
    )
