"""The special tokens of a tokenizer.json, and the file in which no text is encoded to them.

The library finds a special token in a text by its name, which `encode_special_tokens` prevents. But
the model of a file may find it too, if its vocabulary has the name: as a piece (Unigram), as a word
(WordLevel, WordPiece, BPE with ignore_merges) or by merges (BPE).
"""

from typing import Any
from uuid import uuid4

from xformer_kit.data.plain import Plain
from xformer_kit.data.tokenizer.decoding_rule import byte_characters, step_types


def byte_token_names(data: Plain) -> list[str]:
    """Returns the name of each byte's token, if text is encoded to tokens of bytes; else []."""
    if "ByteLevel" in step_types(data, "normalizer", "pre_tokenizer"):
        return byte_characters()
    return [*map("<0x{:02X}>".format, range(256))] if data["model"].get("byte_fallback") else []


def special_names(data: Plain) -> set[str]:
    """Returns the names of the tokens that a file marks as special. A byte is always text."""
    marked = {token["content"] for token in data["added_tokens"] if token["special"]}
    return marked - {*byte_token_names(data)}


def without_specials(data: Plain) -> Plain:
    """Returns a tokenizer.json in which the special tokens and that of unknown text have other
    names, which no text has; ids do not change.
    """
    model = data["model"]
    vocabulary = model["vocab"]
    words = {name for name, _ in vocabulary} if isinstance(vocabulary, list) else vocabulary.keys()
    unknown = model.get("unk_token")
    if model.get("unk_id") is not None:
        unknown = vocabulary[model["unk_id"]][0]
    hidden = (special_names(data) | ({unknown} - {None})) & words
    if not hidden:
        return data
    prefix = uuid4().hex  # not known when a text is written

    def renamed(name: Any) -> Any:
        return f"{prefix} {name}" if name in hidden else name

    model = dict(model)
    if isinstance(vocabulary, list):
        model["vocab"] = [[renamed(name), score] for name, score in vocabulary]
    else:
        model["vocab"] = {renamed(name): i for name, i in vocabulary.items()}
    if "unk_token" in model:
        model["unk_token"] = renamed(unknown)
    if "merges" in model:
        inner = len(model.get("continuing_subword_prefix") or "")
        model["merges"] = [
            [left, right]
            for left, right in model["merges"]
            if hidden.isdisjoint((left, right, left + right[inner:]))
        ]
    added = [token | {"content": renamed(token["content"])} for token in data["added_tokens"]]
    return {**data, "model": model, "added_tokens": added}
