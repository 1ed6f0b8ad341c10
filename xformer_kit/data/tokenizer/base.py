"""How does text become numbers? A tokenizer turns text into ids and back, and fits into one JSON
file.

Every token stands for a string of bytes, so decoding is one rule for most: join the bytes and read
them as utf-8. Bytes that are no utf-8 are shown as U+FFFD. Text comes back unchanged from tokens of
bytes (byte, bpe, unigram) and of characters; from those of words up to white space and unknown
words. Special tokens are those of an objective (an end, a mask): they stand behind the tokens of
the text, which never encodes to one, and for no bytes.
"""

import codecs
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.registry import Registry

TOKENIZERS = Registry("tokenizer")


class Tokenizer:
    """What every tokenizer can do. A part defines `encode` and `pieces`; a learner `fit`, `state`,
    `restore` too.
    """

    learns_from: tuple[str, ...] = ()  # the splits whose text `fit` needs
    vocab_size: int  # tokens of the text: ids are 0 .. vocab_size - 1
    fewest: int = 0  # tokens of the text that there are whatever is learned from it
    specials: tuple[str, ...] = ()  # their ids follow: vocab_size .. size - 1
    # words begin with a space of their own, which is left out where the text begins
    spaced: bool = False
    # the token for what the tokenizer does not know, where there is one
    unknown_id: int | None = None

    def fit(self, texts: Iterable[str]) -> None:
        """Learn from pieces of one text, cut anywhere."""

    def encode(self, text: str | bytes) -> np.ndarray:
        """The ids of a text, of the smallest unsigned type that holds them. Raises ConfigError
        where it cannot.
        """
        raise NotImplementedError

    def pieces(self) -> list[bytes]:
        """The bytes that each id stands for."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Plain values from which `restore` rebuilds a fitted tokenizer."""
        return {}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "Tokenizer":
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
        return np.dtype(
            np.uint8
            if self.vocab_size <= 2**8
            else np.uint16
            if self.vocab_size <= 2**16
            else np.uint32
        )

    def join(self, ids: int | Iterable[int]) -> bytes:
        """The bytes of one id or of a sequence of them, one after the other. Special tokens have
        none.
        """
        pieces, known = self._pieces, self.vocab_size
        return b"".join([pieces[i] for i in _flat(ids).tolist() if i < known])

    def to_bytes(self, ids: int | Iterable[int], goes_on: bool = False) -> bytes:
        """The bytes of a text: of one id or of a sequence of them (a list, an array, a tensor).

        goes_on: there is text before these ids, so that the space of the first word counts.
        """
        joined = self.join(ids)
        return joined if goes_on or not self.spaced else joined.removeprefix(b" ")

    def decode(self, ids: Iterable[int]) -> str:
        return self.to_bytes(ids).decode("utf-8", "replace")

    def stream(self, goes_on: bool = False) -> "Stream":
        """A decoder that is given ids as they come; `goes_on`: behind a text that is there
        already.
        """
        return Stream(self, goes_on)

    def count_bytes(self, ids: Iterable[int], goes_on: bool = False) -> int:
        """Bytes of text that the ids stand for: the length of `to_bytes`, without joining them."""
        if not hasattr(self, "_lengths"):
            self._lengths = np.array([len(piece) for piece in self._pieces], dtype=np.int64)
        known = _flat(ids)
        known = known[known < self.vocab_size]
        lengths = self._lengths[known]
        first = self._pieces[known[np.flatnonzero(lengths)[0]]] if lengths.any() else b""
        return int(lengths.sum()) - int(self.spaced and not goes_on and first.startswith(b" "))

    def count_unknown(self, ids: Iterable[int]) -> int:
        """How many of the ids stand for something that the tokenizer does not know."""
        return (
            0 if self.unknown_id is None else int(np.count_nonzero(_flat(ids) == self.unknown_id))
        )

    def word_starts(self, ids: Iterable[int]) -> np.ndarray:
        """True where a token begins a word, so that whole words can be masked: a bool for each id.

        A word is a run of characters that are not white space; it begins with the token that holds
        its first byte. So tokens of white space alone begin none. A special token is a word of its
        own, and what follows it begins anew.
        """
        flat, known = _flat(ids), self.vocab_size
        special = flat >= known
        pieces = [
            b"\n" if alone else self._pieces[i]
            for i, alone in zip(flat.tolist(), special.tolist(), strict=True)
        ]
        text = b"".join(pieces)
        spaces = [match.span() for match in _SPACES.finditer(text)]
        begins = (
            [end for _, end in spaces]
            if spaces and spaces[0][0] == 0
            else [0, *(end for _, end in spaces)]
        )
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        holds = np.searchsorted(ends, [at for at in begins if at < len(text)], side="right")
        starts = special.copy()
        starts[holds] = True
        return starts

    def content(self) -> str | None:
        """sha256 of what the options name without holding it, such as a file; None where there is
        no such thing.
        """
        return None

    def encode_all(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Ids of pieces of one text; concatenated they are the ids of the whole."""
        return map(self.encode, texts)

    def encode_each(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Ids of each text by itself."""
        return map(self.encode, texts)

    @classmethod
    def recognises(cls, data: Mapping[str, Any]) -> bool:
        """Whether a tokenizer.json of the library `tokenizers`, as plain values, is one that this
        class saved.
        """
        return False

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one JSON file, complete or not at all."""
        name = next(name for name, part in TOKENIZERS.items() if part is type(self))
        self._write(
            path,
            json.dumps({"tokenizer": name, "state": self.state()}, ensure_ascii=False, indent=1),
        )

    @staticmethod
    def _write(path: str | os.PathLike[str], text: str) -> None:
        beside = Path(f"{os.fspath(path)}.{os.getpid()}.tmp")
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)

    @property
    def _pieces(self) -> list[bytes]:
        if not hasattr(self, "_made_pieces"):
            self._made_pieces = self.pieces()
        return self._made_pieces


class Stream:
    """Ids in, text out: a character is held back until all of its bytes have come.

    The texts of all calls and of `end` together are `decode` of all ids.
    """

    def __init__(self, tokenizer: Tokenizer, goes_on: bool = False):
        self.tokenizer = tokenizer
        self.goes_on = goes_on
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, ids: int | Iterable[int]) -> str:
        data = self.tokenizer.to_bytes(ids, self.goes_on)
        self.goes_on = self.goes_on or bool(data) or bool(self.tokenizer.join(ids))
        return self.decoder.decode(data)

    def end(self) -> str:
        """What is left: U+FFFD where a character was never finished."""
        return self.decoder.decode(b"", final=True)


def _flat(ids: Any) -> np.ndarray:
    return np.asarray(ids, dtype=np.int64).reshape(-1)


# What `str.isspace` says of characters, of their utf-8.
_SPACES = re.compile(
    b"(?:"
    + b"|".join(
        re.escape(c.encode())
        for c in "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
    )
    + b"|\xe2\x80[\x80-\x8a])+"
)
