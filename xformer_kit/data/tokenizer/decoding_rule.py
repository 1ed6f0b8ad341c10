"""The bytes of tokens of the library `tokenizers`, from the rule of their decoder."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from xformer_kit.data.plain import Plain

TokenBytes = Callable[[str], bytes]  # the name of a token -> its bytes
# pre-tokenizers that remove what separates the words
REMOVING = {"Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit"}
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class DecodingRule(NamedTuple):
    """The rule by which tokens are decoded."""

    token_bytes: TokenBytes  # returns the bytes of a token from its name
    # whether tokens of words include the space before them, which decoding omits at the start
    spaced: bool = False
    # returns the name of a byte's token; None without such tokens
    byte_name: Callable[[int], str] | None = None
    # prefix of the names of tokens inside a word; "" if words are separated by white space
    inner_prefix: str = ""


def decoding_rule(data: Plain, decoder: Any) -> DecodingRule | None:
    """Returns the decoding rule of a tokenizer.json; None if the text of a token depends on others.

    data: the file as plain values. decoder: that of the library, or None.
    """
    steps = _steps(data["decoder"])
    kinds = [step["type"] for step in steps]
    if not steps:  # the library joins tokens by spaces
        return DecodingRule(lambda name: b" " + name.encode(), spaced=True)
    if kinds == ["ByteLevel"]:
        spaced = '"add_prefix_space": true' in json.dumps(data.get("pre_tokenizer"))
        return DecodingRule(_byte_level, spaced, byte_characters().__getitem__)
    if kinds == ["WordPiece"]:
        return DecodingRule(_after_another(decoder), True, inner_prefix=steps[0]["prefix"])
    if kinds == ["Metaspace"]:
        spaced = steps[0].get("prepend_scheme", "always") != "never"
        return DecodingRule(_after_another(decoder), spaced)
    return _byte_fallback(steps)


def step_types(data: Plain, *parts: str) -> set[str]:
    """Returns the types of the steps of parts of a tokenizer.json, such as its pre-tokenizer."""
    return {step["type"] for part in parts for step in _steps(data[part])}


def _steps(node: Plain | None) -> list[Plain]:
    """Returns the steps of a node, those of a sequence one by one."""
    if node is None:
        return []
    if node["type"] == "Sequence":
        inner = next(value for key, value in node.items() if key != "type")
        return [step for one in inner for step in _steps(one)]
    return [node]


def implied_decoder(data: Plain) -> Plain | None:
    """Returns the decoder of a tokenizer.json without one, from its other parts; None if they do
    not determine it, or the library's default, tokens joined by spaces, is right.
    """
    model = data["model"]
    steps = [step for part in ("normalizer", "pre_tokenizer") for step in _steps(data[part])]
    by_type = {step["type"]: step for step in steps}
    if "ByteLevel" in by_type:
        keys = "add_prefix_space", "trim_offsets", "use_regex"
        return {"type": "ByteLevel"} | dict.fromkeys(keys, True)
    if step := by_type.get("Metaspace"):
        return step
    if prefix := model.get("continuing_subword_prefix"):
        return {"type": "WordPiece", "prefix": prefix, "cleanup": True}
    if suffix := model.get("end_of_word_suffix"):
        return {"type": "BPEDecoder", "suffix": suffix}
    if model["type"] == "WordLevel" or separates_words(data):
        return None
    replaced = [
        {"type": "Replace", "pattern": {"String": step["content"]}, "content": " "}
        for step in steps
        if step["type"] == "Replace" and step["pattern"] == {"String": " "}
    ]
    fallback = [{"type": "ByteFallback"}] * bool(model.get("byte_fallback"))
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * ("Prepend" in by_type)
    return {"type": "Sequence", "decoders": [*replaced, *fallback, {"type": "Fuse"}, *strip]}


def separates_words(data: Plain) -> bool:
    """Whether the pre-tokenizer of a tokenizer.json removes what separates the words."""
    return any(
        step["type"] in REMOVING or "removed" in str(step.get("behavior")).lower()
        for step in _steps(data["pre_tokenizer"])
    )


def _byte_fallback(steps: list[Plain]) -> DecodingRule | None:
    """Returns the rule of decoders with replaced characters, tokens of bytes, and a space that is
    stripped from the start, as in Llama, Gemma and `unigram`; None for other decoders.
    """
    replaced: list[tuple[str, str]] = []
    spaced = False
    for step in steps:
        if step["type"] == "Replace" and "String" in step["pattern"]:
            replaced.append((step["pattern"]["String"], step["content"]))
        elif step == {"type": "Strip", "content": " ", "start": 1, "stop": 0}:
            spaced = True
        elif step["type"] not in ("ByteFallback", "Fuse"):
            return None
    if {"type": "ByteFallback"} not in steps:
        return None

    def token_bytes(name: str) -> bytes:
        if byte := BYTE_TOKEN.fullmatch(name):
            return bytes([int(byte[1], 16)])
        for pattern, content in replaced:
            name = name.replace(pattern, content)
        return name.encode()

    return DecodingRule(token_bytes, spaced, "<0x{:02X}>".format)


def _after_another(decoder: Any) -> TokenBytes:
    """Returns a function that decodes a token after another one, with the library's decoder."""
    return lambda name: decoder.decode(["x", name]).encode()[1:]


def _byte_level(name: str) -> bytes:
    """Returns the bytes of a token of a byte-level vocabulary; utf-8 for a name with other
    characters.
    """
    try:
        return bytes(_BYTE_OF[character] for character in name)
    except KeyError:
        return name.encode()


def without_prefix(data: Plain, has_bytes: bool) -> tuple[Plain, bool]:
    """Returns a tokenizer.json that adds no space before a text, and whether the original adds one
    only to texts that do not begin with a space.

    has_bytes: whether there is a token for each byte. Otherwise normalizers strip the space of a
    text, and such a conditional prefix stays.
    """
    conditional = False

    def edited(node: Any) -> Any:
        nonlocal conditional
        if isinstance(node, list):
            return [edited(inner) for inner in node if not _is_prepend(inner)]
        if _is_prepend(node):
            return None
        if not isinstance(node, dict):
            return node
        node = {key: edited(value) for key, value in node.items()}
        if has_bytes and node.get("add_prefix_space"):
            conditional, node["add_prefix_space"] = True, False
        if has_bytes and node.get("prepend_scheme", "never") != "never":
            conditional, node["prepend_scheme"] = True, "never"
        return node

    changed = {key: edited(data[key]) for key in ("normalizer", "pre_tokenizer")}
    return {**data, **changed}, conditional


def _is_prepend(node: Any) -> bool:
    return isinstance(node, dict) and node.get("type") == "Prepend"


def byte_characters() -> list[str]:
    """Returns the character for each byte in a byte-level vocabulary: itself if it is printable,
    else one from U+0100 on.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    substitutes = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(substitutes)) for byte in range(256)]


_BYTE_OF = {char: byte for byte, char in enumerate(byte_characters())}
