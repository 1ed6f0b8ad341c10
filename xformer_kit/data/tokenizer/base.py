"""Base of the tokenizers: text to ids and back, saved in one JSON file.

Each token is a string of bytes. Most tokenizers decode by joining the bytes and reading them as
utf-8; bytes that are not utf-8 become U+FFFD. Tokens of bytes (byte, bpe, unigram) and of
characters reproduce a text exactly; tokens of words up to white space and unknown words. Special
tokens are those of an objective (an end, a mask): their ids follow those of the text, no text is
encoded to one, and they have no bytes.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.plain import Plain
from xformer_kit.data.tokenizer.encoding import Encoding
from xformer_kit.registry import Registry, config_error

Ids = int | Iterable[int]  # one id, or a sequence of them: a list, an array, a tensor
TOKENIZERS = Registry("tokenizer")


class Tokenizer:
    """Base of the tokenizers. A tokenizer defines `encode` and `pieces`; if it is fitted also
    `fit`, `state` and `restore`.
    """

    fit_splits: tuple[str, ...] = ()  # splits whose text `fit` needs
    vocab_size: int  # number of tokens of text, whose ids are 0 .. vocab_size - 1
    min_vocab_size: int = 0  # smallest vocab_size after a fit
    specials: tuple[str, ...] = ()  # special tokens, whose ids are vocab_size .. size - 1
    # of a published model: the ids of the objective's special tokens, which are tokens of text
    published: Mapping[str, int] = {}
    # of a published model: the ids before and after each text that the model reads
    around: tuple[list[int], list[int]] | None = None
    # whether tokens of words include the space before them, which decoding omits at the start
    spaced: bool = False
    unknown_id: int | None = None  # the token for unknown text, if there is one
    file_hash: str | None = None  # sha256 of a file that the options name

    def fit(self, texts: Iterable[str]) -> None:
        """Fits the tokenizer on one text in pieces, which may be cut at any character."""

    def encode(self, text: str | bytes) -> np.ndarray:
        """Returns the ids of a text, in the smallest unsigned type for the vocabulary. Raises
        ConfigError for text that cannot be encoded.
        """
        raise NotImplementedError

    def pieces(self) -> list[bytes]:
        """Returns the bytes of each token, in the order of ids."""
        raise NotImplementedError

    def state(self) -> Plain:
        """Returns plain values from which `restore` rebuilds a fitted tokenizer."""
        return {}

    @classmethod
    def restore(cls, state: Plain) -> "Tokenizer":
        """Returns the tokenizer of a `state`."""
        return cls(**state)

    @property
    def size(self) -> int:
        """Number of tokens, with the special ones."""
        return self.vocab_size + len(self.specials)

    def special(self, name: str) -> int:
        """Returns the id of a special token. Raises ConfigError if a published model has none."""
        if name in self.published:
            return self.published[name]
        if name not in self.specials:
            raise config_error(
                "tokenizer",
                f"must have a token in place of {name} of the task, which the files of this"
                " published model do not name",
                fix="Train it on your texts first: init_from=DIRECTORY.",
            )
        return self.vocab_size + self.specials.index(name)

    def special_names(self) -> dict[int, str]:
        """Returns the names of the special tokens by their ids."""
        return {self.special(name): name for name in (*self.specials, *self.published)}

    @property
    def dtype(self) -> np.dtype:
        """The smallest unsigned type of ids of text."""
        return np.min_scalar_type(min(max(self.vocab_size - 1, 0), 2**32 - 1))

    def with_start(self, ids: Ids) -> np.ndarray:
        """Returns the ids (t,) of a text from its beginning, int64: after those that a published
        model reads before each text, such as `<s>`.
        """
        before, _ = self.around or ([], [])
        return np.concatenate([before, flat(ids)]).astype(np.int64)

    def whole(self, ids: Ids) -> np.ndarray:
        """Returns the ids (t,) of a whole text, int64: within those that a published model reads
        around each text.
        """
        _, after = self.around or ([], [])
        return np.concatenate([self.with_start(ids), after]).astype(np.int64)

    def join(self, ids: Ids) -> bytes:
        """Returns the joined bytes of tokens. Special tokens have none."""
        pieces, size = self._pieces, self.vocab_size
        return b"".join([pieces[i] for i in flat(ids).tolist() if i < size])

    def to_bytes(self, ids: Ids, continuation: bool = False) -> bytes:
        """Returns the bytes of a text.

        continuation: whether text precedes these ids, so that the space before the first word is
        kept.
        """
        joined = self.join(ids)
        return joined if continuation or not self.spaced else joined.removeprefix(b" ")

    def decode(self, ids: Ids) -> str:
        """Returns the text of token ids."""
        return self.to_bytes(ids).decode("utf-8", "replace")

    def stream(self, continuation: bool = False) -> "Stream":
        """Returns a decoder of ids as they are generated. continuation: whether they continue a
        text.
        """
        return Stream(self, continuation)

    def count_unknown(self, ids: Ids) -> int:
        """Returns the number of ids for unknown text."""
        return 0 if self.unknown_id is None else int((flat(ids) == self.unknown_id).sum())

    def word_starts(self, ids: Ids) -> np.ndarray:
        """Returns whether each token begins a word, to mask whole words: a bool for each id.

        A word is a run of characters that are not white space; it begins with the token that holds
        its first byte. Tokens of only white space begin no word. A special token is a separate
        word.
        """
        ids = flat(ids)
        starts = ids >= self.vocab_size  # the special tokens
        pieces = [self._pieces[i] if i < self.vocab_size else b"\n" for i in ids.tolist()]
        text = b"".join(pieces)
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        # after each run of white space, and at the start, due to the added line end
        words = [match.end() - 1 for match in _SPACES.finditer(b"\n" + text)]
        starts[np.searchsorted(ends, [at for at in words if at < len(text)], side="right")] = True
        return starts

    def encoding(self, text: str) -> Encoding:
        """Returns the ids of a text, with the bytes of the text that each token stands for."""
        ids = self.encode(text)
        return Encoding.of_lengths(text, ids, self._lengths[ids])

    def encode_all(self, texts: Iterable[str]) -> Iterator[Encoding]:
        """Yields the encodings of pieces of one text, which is given in pieces; concatenated, their
        ids are the ids of the text.
        """
        return map(self.encoding, texts)

    def encode_each(self, texts: Iterable[str]) -> Iterator[Encoding]:
        """Yields the encoding of each text."""
        return map(self.encoding, texts)

    @classmethod
    def recognises(cls, data: Plain) -> bool:
        """Whether this class saved a tokenizer.json of the library `tokenizers`, given as plain
        values.
        """
        return False

    def save(self, path: Path) -> None:
        """Writes one JSON file, atomically."""
        saved = {"tokenizer": TOKENIZERS.name_of(type(self)), "state": self.state()}
        cache.write(path, json.dumps(saved, ensure_ascii=False, indent=1) + "\n")

    @cached_property
    def _pieces(self) -> list[bytes]:
        return self.pieces()

    @cached_property
    def _lengths(self) -> np.ndarray:
        return np.array([len(piece) for piece in self._pieces], dtype=np.int64)


class Stream:
    """Decodes ids in several calls. A character is returned when all of its bytes are complete.

    The joined texts of all calls and of `end` are `decode` of all ids.
    """

    def __init__(self, tokenizer: Tokenizer, continuation: bool = False):
        self.tokenizer = tokenizer
        self.continuation = continuation
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, ids: Ids) -> str:
        data = self.tokenizer.to_bytes(ids, self.continuation)
        self.continuation = self.continuation or bool(data) or bool(self.tokenizer.join(ids))
        return self.decoder.decode(data)

    def end(self) -> str:
        """Returns the rest: U+FFFD for an incomplete character."""
        return self.decoder.decode(b"", final=True)


def flat(ids: Any) -> np.ndarray:
    """Returns one id, or a sequence, an array or a tensor of ids, as (n,) int64."""
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
