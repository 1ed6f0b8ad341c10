"""The messages with which a config is refused, and functions that return tests of them."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.messages import messages
from xformer_kit import ConfigError, compose
from xformer_kit.laws import faults, tiny_config


def refused(words: str | Sequence[str]) -> list[str]:
    """Returns the messages for overrides: one string, or a list if an override contains a space."""
    with pytest.raises(ConfigError) as error:
        compose(words.split() if isinstance(words, str) else list(words))
    return list(error.value.messages)


def refusals(expected: Mapping[str, str]) -> Callable[[str], None]:
    """Returns a test of overrides -> all their messages, one per line."""

    @pytest.mark.parametrize("words", expected)
    def test(words: str) -> None:
        assert refused(words) == expected[words].splitlines()

    return test


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
