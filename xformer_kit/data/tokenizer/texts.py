"""Converts text to utf-8 and back, and cuts it into pieces or an even sample."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from xformer_kit.registry import config_error

Item = TypeVar("Item")


def utf8(text: str) -> bytes:
    """Returns the utf-8 bytes of a text; surrogates of PEP 383 become their bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise config_error(
            "tokenizer",
            "text must be Unicode",
            f"half a surrogate pair at character {error.start}",
            "Leave it out.",
        ) from None


def as_text(data: str | bytes) -> str:
    """Returns a text, decoded if it is bytes. Raises ConfigError for bytes that are not utf-8."""
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise config_error(
            "tokenizer",
            "text must be utf-8",
            f"byte 0x{data[error.start]:02X} at position {error.start}",
            "Use tokenizer=byte.",
        ) from None


def whole_words(
    texts: Iterable[str], size: int = 1 << 16, end: re.Pattern[str] | None = None
) -> Iterator[str]:
    """Yields a text in pieces of slightly more than `size` characters whose tokens are those of the
    text.

    The library splits a text into words before it merges. A word contains no space or line end
    after a character other than a space, so that a text may be cut before one. The split of a run
    of spaces depends on the character after it, so that runs are not cut. end: matches other
    positions to cut at.
    """
    end, partial = end or _WORD_END, ""
    for text in texts:
        partial, start = partial + text, 0
        while cut := end.search(partial, start + size):
            yield partial[start : cut.start()]
            start = cut.start()
        partial = partial[start:]
        if len(partial) > _MAX_WORD:
            yield partial
            partial = ""
    if partial:
        yield partial


_WORD_END = re.compile(r"(?<=\S)[ \n]")
_MAX_WORD = 1 << 22  # characters; bounds the memory for a text without spaces


def first_few(names: Iterable[str]) -> str:
    """Returns the first eight names, for a message."""
    first = list(islice(names, 9))
    return ", ".join([*first[:8], "..."] if len(first) > 8 else first)


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yields lists of `size` items; the last may be shorter."""
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def sample(texts: Iterable[str], characters: int, size: int = 4096) -> list[str]:
    """Returns pieces of about `size` characters, spread evenly over a text, with at most
    `characters` in total; all of a shorter text.

    Every piece is kept, then every second, every fourth, ..., whenever there are too many. So the
    sample depends only on the text, without its length in advance, and memory is that of the
    sample.
    """
    kept: list[str] = []  # pieces 0, step, 2 step, ...
    step, total = 1, 0
    for i, piece in enumerate(whole_words(texts, size)):
        if i % step:
            continue
        kept.append(piece)
        total += len(piece)
        while total > characters and len(kept) > 1:
            step *= 2
            kept = kept[::2]
            total = sum(map(len, kept))
    return [text[:characters] for text in kept]
