"""The sentences with which a config is refused, and tests made of them."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.messages import messages
from xformer_kit import ConfigError, compose
from xformer_kit.laws import faults, tiny


def refused(words: str | Sequence[str]) -> list[str]:
    """The sentences for overrides: a line of them, or a list if one contains a space."""
    with pytest.raises(ConfigError) as error:
        compose(words.split() if isinstance(words, str) else list(words))
    return list(error.value.messages)


def refusals(sentences: Mapping[str, str]) -> Callable[[str], None]:
    """A test for each line of overrides: all its sentences, one per line of text."""

    @pytest.mark.parametrize("words", sentences)
    def test(words: str) -> None:
        assert refused(words) == sentences[words].splitlines()

    return test


def refusals_with(parts: Mapping[str, str]) -> Callable[[str], None]:
    """A test for each line of overrides: a part of its sentences."""

    @pytest.mark.parametrize("words", parts)
    def test(words: str) -> None:
        assert parts[words] in "\n".join(refused(words))

    return test


def refusals_among(cases: Sequence[tuple[list[str], list[str]]]) -> Callable[..., None]:
    """A test for each list of overrides: some of its sentences, others may follow from them."""

    @pytest.mark.parametrize(("words", "expected"), cases, ids=lambda x: " ".join(x or [])[:40])
    def test(words: list[str], expected: list[str]) -> None:
        assert set(expected) <= set(refused(words))

    return test


def tiny_refusals(cases: Sequence[tuple[dict[str, Any], str]]) -> Callable[..., None]:
    """A test for each change of a tiny config: its only sentence matches a pattern."""

    @pytest.mark.parametrize(("changes", "sentence"), cases)
    def test(changes: dict[str, Any], sentence: str) -> None:
        (fault,) = messages(faults(tiny(**changes)))
        assert re.fullmatch(sentence, fault)

    return test
