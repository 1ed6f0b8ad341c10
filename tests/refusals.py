"""The messages with which a config is refused, and functions that return tests of them."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.messages import messages
from xformer_kit import ConfigError, compose
from xformer_kit.laws import faults, tiny_config

# config path: ... Try VALUE.
PROPOSED = re.compile(r"([\w.]+): .* Try ([\w.,\[\]-]+)\.")


def refused(words: str | Sequence[str]) -> list[str]:
    """Returns the messages for overrides: one string, or a list if an override contains a space."""
    with pytest.raises(ConfigError) as error:
        compose(words.split() if isinstance(words, str) else list(words))
    return list(error.value.messages)


def refusals(expected: Mapping[str, str]) -> Callable[[str], None]:
    """Returns a test of overrides -> all their messages, one per line. A value that a message
    proposes is not refused.
    """

    @pytest.mark.parametrize("words", expected)
    def test(words: str) -> None:
        found = refused(words)
        assert found == expected[words].splitlines()
        lists = tuple(re.findall(r"([\w.]+\b)=\[", str(words)))  # no line sets a value in a list
        matches = filter(None, map(PROPOSED.fullmatch, found))
        if fixes := dict(m.groups() for m in matches if not m[1].startswith(lists)):
            assert not fixes.keys() & {each.partition(":")[0] for each in still(words, fixes)}

    return test


def still(words: str | Sequence[str], fixes: Mapping[str, str]) -> Sequence[str]:
    """Returns the messages for overrides in which {config path: value} are changed."""
    words = words.split() if isinstance(words, str) else words
    kept = [word for word in words if word.partition("=")[0] not in fixes]
    try:
        compose([*kept, *(f"{path}={value}" for path, value in fixes.items())])
    except ConfigError as error:
        return error.messages
    return []


def refusals_with(parts: Mapping[str, str]) -> Callable[[str], None]:
    """Returns a test of overrides -> a part of their messages."""

    @pytest.mark.parametrize("words", parts)
    def test(words: str) -> None:
        assert parts[words] in "\n".join(refused(words))

    return test


def refusals_among(cases: Sequence[tuple[list[str], list[str]]]) -> Callable[..., None]:
    """Returns a test of (overrides, some of their messages)."""

    @pytest.mark.parametrize(("words", "expected"), cases, ids=lambda x: " ".join(x or [])[:40])
    def test(words: list[str], expected: list[str]) -> None:
        assert set(expected) <= set(refused(words))

    return test


def tiny_refusals(cases: Sequence[tuple[dict[str, Any], str]]) -> Callable[..., None]:
    """Returns a test of (changes of a tiny config, pattern of the only message)."""

    @pytest.mark.parametrize(("changes", "pattern"), cases)
    def test(changes: dict[str, Any], pattern: str) -> None:
        (message,) = messages(faults(tiny_config(**changes)))
        assert re.fullmatch(pattern, message)

    return test
