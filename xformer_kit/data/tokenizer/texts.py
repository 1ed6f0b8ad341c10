"""What is text, and how is it cut? Into pieces that tokenize as the whole does, and into an even
sample.
"""

import re
from collections.abc import Iterable, Iterator

from xformer_kit.registry import ConfigError


def utf8(text: str) -> bytes:
    """The bytes of a text; bytes of the command line that were no utf-8 (PEP 383) become themselves
    again.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ConfigError(
            "tokenizer: text must be Unicode; got half a surrogate pair at character"
            f" {error.start}. Leave it out."
        ) from None


def as_text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"tokenizer: text must be utf-8; got byte 0x{data[error.start]:02X} at position"
            f" {error.start}. Use tokenizer=byte."
        ) from None


def whole_words(
    texts: Iterable[str], size: int = 1 << 16, end: re.Pattern[str] | None = None
) -> Iterator[str]:
    """The same text in pieces of a little more than `size` characters that tokenize as the whole
    does.

    The library splits a text into words before it merges, and a word never goes on over a space or
    a line end that follows another character than space; a run of spaces is split by what comes
    after it, so it is never cut. `end` matches other places to cut at.
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
_LONGEST_WORD = 1 << 22  # characters; memory stays bounded where a text has no spaces


def batches(items: Iterable[str], size: int) -> Iterator[list[str]]:
    some: list[str] = []
    for item in items:
        some.append(item)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some


def sample(texts: Iterable[str], characters: int, size: int = 4096) -> list[str]:
    """Pieces of about `size` characters, spread evenly over a text, `characters` of them at most;
    all of a shorter text.

    Every piece is kept, then every second, every fourth, ..., whenever there are too many: a
    function of the text alone, that needs no length beforehand and no memory beyond the sample.
    """
    kept: list[tuple[int, str]] = []
    step, total = 1, 0
    for i, piece in enumerate(whole_words(texts, size)):
        if i % step:
            continue
        kept.append((i, piece))
        total += len(piece)
        while total > characters and len(kept) > 1:
            step *= 2
            kept = [(at, text) for at, text in kept if at % step == 0]
            total = sum(len(text) for _, text in kept)
    return [text[:characters] for _, text in kept]
