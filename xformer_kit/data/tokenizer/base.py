"""Base of the tokenizers: text to ids and back, saved in one JSON file.

Every token stands for a string of bytes, so decoding is one rule for most: join the bytes and read
them as utf-8. Bytes that are no utf-8 are shown as U+FFFD. Text comes back unchanged from tokens of
bytes (byte, bpe, unigram) and of characters; from those of words up to white space and unknown
words. Special tokens are those of an objective (an end, a mask): their ids follow those of
the text, no text is encoded to one, and they stand for no bytes.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.plain import Plain
from xformer_kit.registry import Registry

Ids = int | Iterable[int]  # one id, or a sequence of them: a list, an array, a tensor
TOKENIZERS = Registry("tokenizer")


class Tokenizer:
    """Base. A tokenizer defines `encode` and `pieces`; one that is fitted also `fit`, `state` and
    `restore`.
    """

    learns_from: tuple[str, ...] = ()  # the splits whose text `fit` needs
    vocab_size: int  # tokens of the text: ids are 0 .. vocab_size - 1
    fewest: int = 0  # smallest vocab_size after any fit
    specials: tuple[str, ...] = ()  # their ids follow: vocab_size .. size - 1
    # words begin with a space of their own, which is left out at the beginning of a text
    spaced: bool = False
    unknown_id: int | None = None  # the token for unknown text, if there is one
    content: str | None = None  # sha256 of a file that the options name

    def fit(self, texts: Iterable[str]) -> None:
        """Fit on pieces of one text, cut anywhere."""

    def encode(self, text: str | bytes) -> np.ndarray:
        """The ids of a text, of the smallest unsigned type that holds them. Raises ConfigError for
        text that cannot be encoded.
        """
        raise NotImplementedError

    def pieces(self) -> list[bytes]:
        """The bytes that each id stands for."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Plain values from which `restore` rebuilds a fitted tokenizer."""
        return {}

    @classmethod
    def restore(cls, state: Plain) -> "Tokenizer":
        return cls(**state)

    @property
    def size(self) -> int:
        """All tokens, the special ones included."""
        return self.vocab_size + len(self.specials)

    def special(self, name: str) -> int:
        """The id of a special token."""
        return self.vocab_size + self.specials.index(name)

    @property
    def dtype(self) -> np.dtype:
        return np.min_scalar_type(min(max(self.vocab_size - 1, 0), 2**32 - 1))

    def join(self, ids: Ids) -> bytes:
        """The bytes of ids, one after the other. Special tokens have none."""
        pieces, known = self._pieces, self.vocab_size
        return b"".join([pieces[i] for i in flat(ids).tolist() if i < known])

    def to_bytes(self, ids: Ids, goes_on: bool = False) -> bytes:
        """The bytes of a text.

        goes_on: there is text before these ids, so that the space of the first word counts.
        """
        joined = self.join(ids)
        return joined if goes_on or not self.spaced else joined.removeprefix(b" ")

    def decode(self, ids: Ids) -> str:
        return self.to_bytes(ids).decode("utf-8", "replace")

    def stream(self, goes_on: bool = False) -> "Stream":
        """A decoder of ids as they are generated; `goes_on`: they continue a text."""
        return Stream(self, goes_on)

    def count_bytes(self, ids: Ids, goes_on: bool = False) -> int:
        """Bytes of text that the ids stand for: the length of `to_bytes`, without joining them."""
        known = flat(ids)
        known = known[known < self.vocab_size]
        lengths = self._lengths[known]
        first = self._pieces[known[np.flatnonzero(lengths)[0]]] if lengths.any() else b""
        return int(lengths.sum()) - int(self.spaced and not goes_on and first.startswith(b" "))

    def count_unknown(self, ids: Ids) -> int:
        """Number of ids that stand for unknown text."""
        return int(np.count_nonzero(flat(ids) == self.unknown_id))

    def word_starts(self, ids: Ids) -> np.ndarray:
        """True where a token begins a word, so that whole words can be masked: a bool for each id.

        A word is a run of characters that are not white space; it begins with the token that holds
        its first byte. So tokens of only white space begin none. A special token is a word of its
        own, and another word begins after it.
        """
        ids, known = flat(ids), self.vocab_size
        pieces = [self._pieces[i] if i < known else b"\n" for i in ids.tolist()]
        text = b"".join(pieces)
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        # after each run of white space, of which one is put in front of the text
        begins = [match.end() - 1 for match in _SPACES.finditer(b"\n" + text)]
        holds = np.searchsorted(ends, [at for at in begins if at < len(text)], side="right")
        starts = ids >= known
        starts[holds] = True
        return starts

    def encode_all(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Ids of pieces of one text; concatenated they are the ids of the whole."""
        return map(self.encode, texts)

    def encode_each(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Ids of each text by itself."""
        return map(self.encode, texts)

    @classmethod
    def recognises(cls, data: Plain) -> bool:
        """Whether a tokenizer.json of the library `tokenizers`, as plain values, is one that this
        class saved.
        """
        return False

    def save(self, path: Path) -> None:
        """Write one JSON file, complete or not at all."""
        saved = {"tokenizer": TOKENIZERS.name_of(type(self)), "state": self.state()}
        cache.write(path, json.dumps(saved, ensure_ascii=False, indent=1) + "\n")

    @cached_property
    def _pieces(self) -> list[bytes]:
        return self.pieces()

    @cached_property
    def _lengths(self) -> np.ndarray:
        return np.array([len(piece) for piece in self._pieces], dtype=np.int64)


class Stream:
    """Ids in, text out: a character is held back until all of its bytes are known.

    The texts of all calls and of `end` together are `decode` of all ids.
    """

    def __init__(self, tokenizer: Tokenizer, goes_on: bool = False):
        self.tokenizer = tokenizer
        self.goes_on = goes_on
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, ids: Ids) -> str:
        data = self.tokenizer.to_bytes(ids, self.goes_on)
        self.goes_on = self.goes_on or bool(data) or bool(self.tokenizer.join(ids))
        return self.decoder.decode(data)

    def end(self) -> str:
        """The rest: U+FFFD for a character that was never finished."""
        return self.decoder.decode(b"", final=True)


def flat(ids: Any) -> np.ndarray:
    """One id, a sequence, an array or a tensor of ids as (n,) int64."""
    return np.asarray(ids, dtype=np.int64).reshape(-1)


# A run of the characters for which `str.isspace` is true, in utf-8.
_SPACES = re.compile(
    b"(?:"
    + b"|".join(
        re.escape(c.encode())
        for c in "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
    )
    + b"|\xe2\x80[\x80-\x8a])+"
)
