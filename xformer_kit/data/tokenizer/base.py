"""How does text become numbers? A tokenizer turns text into ids and back, and fits into one JSON file.

Every token stands for a string of bytes, so decoding is one rule for all: join the bytes and read them as utf-8. Text
that a tokenizer encodes comes back unchanged; bytes that are no utf-8 are shown as U+FFFD. Special tokens are those of an
objective (an end, a mask): they stand behind the tokens of the text, which never encodes to one, and for no bytes.
"""

import codecs
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.registry import ConfigError, Registry, nearest

TOKENIZERS = Registry("tokenizer")


class Tokenizer:
    """What every tokenizer can do. A part defines `encode` and `pieces`; a learner `fit`, `state`, `restore` too."""

    learns_from: tuple[str, ...] = ()  # the splits whose text `fit` needs
    vocab_size: int  # tokens of the text: ids are 0 .. vocab_size - 1
    specials: tuple[str, ...] = ()  # their ids follow: vocab_size .. size - 1

    def fit(self, texts: Iterable[str]) -> None:
        """Learn from pieces of one text, cut anywhere."""

    def encode(self, text: str | bytes) -> np.ndarray:
        """The ids of a text, of the smallest unsigned type that holds them. Raises ConfigError where it cannot."""
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
        return np.dtype(np.uint8 if self.vocab_size <= 2**8 else np.uint16 if self.vocab_size <= 2**16 else np.uint32)

    def to_bytes(self, ids: int | Iterable[int]) -> bytes:
        """The bytes of one id or of a sequence of them (a list, an array, a tensor)."""
        pieces, known = self._pieces, self.vocab_size
        return b"".join([pieces[i] for i in np.asarray(ids, dtype=np.int64).reshape(-1).tolist() if i < known])

    def decode(self, ids: Iterable[int]) -> str:
        return self.to_bytes(ids).decode("utf-8", "replace")

    def stream(self) -> "Stream":
        """A decoder that is given ids as they come."""
        return Stream(self)

    def count_bytes(self, ids: np.ndarray) -> int:
        """Bytes of text that the ids stand for."""
        if not hasattr(self, "_lengths"):
            self._lengths = np.array([len(piece) for piece in self._pieces], dtype=np.int64)
        return int(self._lengths[ids].sum())

    def encode_all(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Ids of pieces of one text; concatenated they are the ids of the whole."""
        return map(self.encode, texts)

    def encode_each(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Ids of each text by itself."""
        return map(self.encode, texts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one JSON file, complete or not at all."""
        name = next(name for name, part in TOKENIZERS.items() if part is type(self))
        self._write(path, json.dumps({"tokenizer": name, "state": self.state()}, ensure_ascii=False, indent=1))

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

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, ids: int | Iterable[int]) -> str:
        return self.decoder.decode(self.tokenizer.to_bytes(ids))

    def end(self) -> str:
        """What is left: U+FFFD where a character was never finished."""
        return self.decoder.decode(b"", final=True)


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer that `save` wrote; `path` is the file, or the directory that holds `tokenizer.json`.

    Raises ConfigError where it is missing or cannot be read, and where a user's own tokenizer was not imported first.
    """
    file = Path(path, "tokenizer.json") if Path(path).is_dir() else Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("no JSON object")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tokenizer: must be a file that a run saved; got '{file}' ({error}). Name a run's directory."
        ) from None
    if "model" in data:
        return TOKENIZERS["bpe"].read(text)
    name = str(data.get("tokenizer"))
    if name not in TOKENIZERS:
        raise ConfigError(
            f"tokenizer: no tokenizer is called '{name}' here, but '{file}' needs it.{nearest(name, TOKENIZERS)} "
            "If it is your own, name its file in parts=[...]."
        )
    return TOKENIZERS[name].restore(data["state"])


def utf8(text: str) -> bytes:
    """The bytes of a text; bytes of the command line that were no utf-8 (PEP 383) become themselves again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"tokenizer: text must be Unicode; got half a surrogate pair at character {error.start}. Leave it out."
        ) from None


def as_text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"tokenizer: text must be utf-8; got byte 0x{data[error.start]:02X} at position {error.start}. "
            "Use tokenizer=byte."
        ) from None
