"""The bytes of tokens of the library `tokenizers`, from the rule of their decoder."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from xformer_kit.data.plain import Plain

Spell = Callable[[str], bytes]
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class DecodingRule(NamedTuple):
    """The rule by which tokens are decoded."""

    spell: Spell  # returns the bytes of a token from its name
    # whether tokens of words include the space before them, which decoding omits at the start
    spaced: bool = False
    byte: Callable[[int], str] | None = (
        None  # returns the name of a byte's token; None without such tokens
    )
    # prefix of the names of tokens inside a word; "" if words are separated by white space
    continues: str = ""


def decoding_rule(data: Plain, decoder: Any) -> DecodingRule | None:
    """Returns the decoding rule of a tokenizer.json; None if the text of a token depends on others.

    data: the file as plain values. decoder: that of the library, or None.
    """
    steps = _steps(data.get("decoder"))
    kinds = [step["type"] for step in steps]
    if not steps:
        return DecodingRule(
            lambda name: b" " + name.encode(), spaced=True
        )  # the library joins tokens by spaces
    if kinds == ["ByteLevel"]:
        characters = byte_characters()
        return DecodingRule(_byte_level, _prefixed(data), characters.__getitem__)
    if kinds == ["WordPiece"]:
        return DecodingRule(_following(decoder), True, continues=steps[0]["prefix"])
    if kinds == ["Metaspace"]:
        return DecodingRule(
            _following(decoder), steps[0].get("prepend_scheme", "always") != "never"
        )
    return _byte_fallback(steps)


def _steps(node: Plain | None) -> list[Plain]:
    if node is None:
        return []
    if node["type"] == "Sequence":
        return [step for inner in node["decoders"] for step in _steps(inner)]
    return [node]


def _byte_fallback(steps: list[Plain]) -> DecodingRule | None:
    """The rule of decoders with replaced characters, tokens of bytes, and a space that is stripped
    from the start, as in Llama, Gemma and `unigram`.
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
    if not any(step["type"] == "ByteFallback" for step in steps):
        return None

    def spell(name: str) -> bytes:
        if byte := BYTE_TOKEN.fullmatch(name):
            return bytes([int(byte[1], 16)])
        for pattern, content in replaced:
            name = name.replace(pattern, content)
        return name.encode()

    return DecodingRule(spell, spaced, "<0x{:02X}>".format)


def _following(decoder: Any) -> Spell:
    """Returns a function that decodes a token after another one, with the library's decoder."""
    return lambda name: decoder.decode(["x", name]).encode()[1:]


def _byte_level(name: str) -> bytes:
    try:
        return bytes(_BYTE_OF[character] for character in name)
    except KeyError:
        return name.encode()


def _prefixed(data: Plain) -> bool:
    return '"add_prefix_space": true' in json.dumps(data.get("pre_tokenizer"))


def without_prefix(data: Plain, has_bytes: bool) -> tuple[dict[str, Any], bool]:
    """Returns a tokenizer.json that adds no space before a text, and whether the original adds one
    only to texts that do not begin with a space.

    has_bytes: whether there is a token for each byte. Otherwise normalizers strip the space of a
    text, and such a conditional prefix stays.
    """
    conditional = False

    def edited(node: Any) -> Any:
        nonlocal conditional
        if isinstance(node, list):
            return [
                edited(inner)
                for inner in node
                if not (isinstance(inner, dict) and inner.get("type") == "Prepend")
            ]
        if not isinstance(node, dict) or node.get("type") == "Prepend":
            return None if isinstance(node, dict) else node
        node = {key: edited(value) for key, value in node.items()}
        if has_bytes and node.get("add_prefix_space"):
            conditional, node["add_prefix_space"] = True, False
        if has_bytes and node.get("prepend_scheme", "never") != "never":
            conditional, node["prepend_scheme"] = True, "never"
        return node

    changed = {key: edited(data[key]) for key in ("normalizer", "pre_tokenizer")}
    return {**data, **changed}, conditional


def byte_characters() -> list[str]:
    """Returns the character for each byte in a byte-level vocabulary: itself if it is printable,
    else one from U+0100 on.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


_BYTE_OF = {char: byte for byte, char in enumerate(byte_characters())}
