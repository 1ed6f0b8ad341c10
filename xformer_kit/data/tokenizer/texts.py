"""Text as utf-8, and cut into pieces that tokenize as the whole does, or into an even sample."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from xformer_kit.data.refused import refused

Item = TypeVar("Item")


def utf8(text: str) -> bytes:
    """The bytes of a text; surrogates of PEP 383 become the bytes that they stand for."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise refused(
            "tokenizer",
            "text must be Unicode",
            f"half a surrogate pair at character {error.start}",
            "Leave it out.",
        ) from None


def as_text(data: str | bytes) -> str:
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise refused(
            "tokenizer",
            "text must be utf-8",
            f"byte 0x{data[error.start]:02X} at position {error.start}",
            "Use tokenizer=byte.",
        ) from None


def whole_words(
    texts: Iterable[str], size: int = 1 << 16, end: re.Pattern[str] | None = None
) -> Iterator[str]:
    """The same text in pieces of a little more than `size` characters that tokenize as the whole
    does.

    The library splits a text into words before it merges, and no word contains a space or a line
    end that follows another character than space; a run of spaces is split by what comes after it,
    so it is never cut. `end` matches other places to cut at.
    """
    end, held = end or _WORD_END, ""
    for text in texts:
        held, start = held + text, 0
        while cut := end.search(held, start + size):
            yield held[start : cut.start()]
            start = cut.start()
        held = held[start:]
        if len(held) > _LONGEST_WORD:
            yield held
            held = ""
    if held:
        yield held


_WORD_END = re.compile(r"(?<=\S)[ \n]")
_LONGEST_WORD = 1 << 22  # characters; bounds the memory for a text without spaces


def first_few(names: Iterable[str]) -> str:
    """The first eight names, for a message."""
    few = list(islice(names, 9))
    return ", ".join([*few[:8], "..."] if len(few) > 8 else few)


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` items; the last may be shorter."""
    items = iter(items)
    while some := list(islice(items, size)):
        yield some


def sample(texts: Iterable[str], characters: int, size: int = 4096) -> list[str]:
    """Pieces of about `size` characters, spread evenly over a text, `characters` of them at most;
    all of a shorter text.

    Every piece is kept, then every second, every fourth, ..., whenever there are too many: a
    function of only the text, without its length beforehand or memory beyond the sample.
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
