"""The bytes of the tokens of the library `tokenizers`, by the rule of their decoder."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from xformer_kit.data.plain import Plain

Spell = Callable[[str], bytes]
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class Rule(NamedTuple):
    """How the tokens of a tokenizer become text."""

    spell: Spell  # the bytes of a token, by its name
    # words begin with a space of their own, which is left out at the beginning of a text
    spaced: bool = False
    byte: Callable[[int], str] | None = None  # the name of the token of one byte, if there are such
    # prefix of the names of tokens inside a word; "" if words are separated by white space
    continues: str = ""


def rule_of(data: Plain, decoder: Any) -> Rule | None:
    """The rule of a tokenizer.json; None if its decoder reads more than one token at a time.

    data: the file as plain values; decoder: the library's own, or None.
    """
    steps = _steps(data.get("decoder"))
    kinds = [step["type"] for step in steps]
    if not steps:
        return Rule(lambda name: b" " + name.encode(), spaced=True)  # the library joins by spaces
    if kinds == ["ByteLevel"]:
        characters = byte_characters()
        return Rule(_byte_level, _prefixed(data), characters.__getitem__)
    if kinds == ["WordPiece"]:
        return Rule(_following(decoder), True, continues=steps[0]["prefix"])
    if kinds == ["Metaspace"]:
        return Rule(_following(decoder), steps[0].get("prepend_scheme", "always") != "never")
    return _byte_fallback(steps)


def _steps(node: Plain | None) -> list[Plain]:
    if node is None:
        return []
    if node["type"] == "Sequence":
        return [step for inner in node["decoders"] for step in _steps(inner)]
    return [node]


def _byte_fallback(steps: list[Plain]) -> Rule | None:
    """Replaced characters, bytes by their numbers, and a space that is stripped from the start:
    Llama, Gemma, ours.
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

    return Rule(spell, spaced, "<0x{:02X}>".format)


def _following(decoder: Any) -> Spell:
    """The text of a token after another, by the library's decoder."""
    return lambda name: decoder.decode(["x", name]).encode()[1:]


def _byte_level(name: str) -> bytes:
    try:
        return bytes(_BYTE_OF[character] for character in name)
    except KeyError:
        return name.encode()


def _prefixed(data: Plain) -> bool:
    return '"add_prefix_space": true' in json.dumps(data.get("pre_tokenizer"))


def without_prefix(data: Plain, spelled: bool) -> tuple[dict[str, Any], bool]:
    """A tokenizer.json that puts no space in front of a text; and whether the given one puts it
    there only where the text begins with none.

    spelled: there is a token for each byte. If there is none, normalisers strip the text's own
    space, so that such a conditional prefix stays.
    """
    hidden = False

    def edited(node: Any) -> Any:
        nonlocal hidden
        if isinstance(node, list):
            return [
                edited(inner)
                for inner in node
                if not (isinstance(inner, dict) and inner.get("type") == "Prepend")
            ]
        if not isinstance(node, dict) or node.get("type") == "Prepend":
            return None if isinstance(node, dict) else node
        node = {key: edited(value) for key, value in node.items()}
        if spelled and node.get("add_prefix_space"):
            hidden, node["add_prefix_space"] = True, False
        if spelled and node.get("prepend_scheme", "never") != "never":
            hidden, node["prepend_scheme"] = True, "never"
        return node

    changed = {key: edited(data[key]) for key in ("normalizer", "pre_tokenizer")}
    return {**data, **changed}, hidden


def byte_characters() -> list[str]:
    """The character for each byte in a byte-level vocabulary: itself where it prints, else from
    U+0100 on.
    """
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte if byte in shown else next(hidden)) for byte in range(256)]


_BYTE_OF = {char: byte for byte, char in enumerate(byte_characters())}
