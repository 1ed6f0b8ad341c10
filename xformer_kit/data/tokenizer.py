"""How does text become numbers? A tokenizer turns text into ids and back, and fits into one JSON file.

Every token stands for a string of bytes, so decoding is one rule for all: join the bytes and read them as utf-8. Text
that a tokenizer encodes comes back unchanged; bytes that are no utf-8 are shown as U+FFFD. Special tokens are those of an
objective (an end, a mask): they stand behind the tokens of the text, which never encodes to one, and for no bytes.
"""

import codecs
import json
import os
import re
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


@TOKENIZERS.register("byte", also_called=("utf8", "bytes"))
class Byte(Tokenizer):
    """One token per byte of utf-8: 256 ids, nothing to learn, any text (Xue et al., 2022, arXiv:2105.13626)."""

    vocab_size = 256

    def __init__(self) -> None:
        pass

    def encode(self, text: str | bytes) -> np.ndarray:
        return np.frombuffer(text if isinstance(text, bytes) else _utf8(text), dtype=np.uint8)

    def pieces(self) -> list[bytes]:
        return [bytes([i]) for i in range(256)]

    def count_bytes(self, ids: np.ndarray) -> int:
        return len(ids)


@TOKENIZERS.register("char", also_called=("character", "characters"))
class Char(Tokenizer):
    """One token per character; the alphabet is every character of the corpus, in the order of code points.

    The alphabet is read from both splits, as in nanoGPT's `data/shakespeare_char/prepare.py`: a character that stands
    in the validation text alone has an id too, and is merely never trained.
    """

    learns_from = ("train", "valid")

    def __init__(self) -> None:
        self._learn("")

    def fit(self, texts: Iterable[str]) -> None:
        alphabet: set[str] = set()
        for text in texts:
            alphabet.update(text)
        self._learn("".join(sorted(alphabet)))

    def _learn(self, alphabet: str) -> None:
        self.alphabet, self.vocab_size = alphabet, len(alphabet)
        points = _points(alphabet)
        self._id_of = np.full(int(points.max(initial=0)) + 2, -1, dtype=np.int64)  # the last entry: beyond the alphabet
        self._id_of[points] = np.arange(len(alphabet))

    def encode(self, text: str | bytes) -> np.ndarray:
        text = text if isinstance(text, str) else _text(text)
        ids = self._id_of[np.minimum(_points(text), len(self._id_of) - 1)]
        if (ids < 0).any():
            raise ConfigError(self._unknown(text, np.flatnonzero(ids < 0)))
        return ids.astype(self.dtype)

    def _unknown(self, text: str, where: np.ndarray) -> str:
        missing = sorted({text[i] for i in where.tolist()})
        named = ", ".join(f"{c!r} (U+{ord(c):04X})" for c in missing[:8]) + (", ..." if len(missing) > 8 else "")
        return (
            f"tokenizer: the alphabet of 'char' is the {self.vocab_size} characters of its corpus; got {named}. "
            "Leave them out of the text, or train with tokenizer=byte."
        )

    def pieces(self) -> list[bytes]:
        return [c.encode() for c in self.alphabet]

    def state(self) -> dict[str, Any]:
        return {"alphabet": self.alphabet}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "Char":
        made = cls()
        made._learn(state["alphabet"])
        return made


@TOKENIZERS.register("bpe", also_called=("byte_bpe", "gpt2", "byte_pair"))
class BPE(Tokenizer):
    """Byte pairs merged by frequency, within words, over all 256 bytes (Sennrich et al., 2016, arXiv:1508.07909;
    over bytes: Radford et al., 2019, section 2.2). Any text can be encoded and comes back unchanged.

    Learned from the training split by the library `tokenizers`; the file is that library's own `tokenizer.json`. A
    small text yields fewer tokens than asked for: `vocab_size` of the fitted tokenizer is what was learned.
    """

    learns_from = ("train",)

    def __init__(self, *, vocab_size: int = 2048):  # tokens: the 256 bytes and the merges
        self.vocab_size = vocab_size
        self.library: Any = None  # a tokenizers.Tokenizer, once fitted

    @classmethod
    def check(cls, options, context):
        if not 257 <= options.vocab_size <= 2**31 - 1:
            yield (
                "vocab_size: must be at least 257, the 256 bytes and one merge; "
                f"got {options.vocab_size}. Try 4096, or tokenizer=byte."
            )

    def fit(self, texts: Iterable[str]) -> None:
        tokenizers = _library()
        level = tokenizers.pre_tokenizers.ByteLevel
        self.library = tokenizers.Tokenizer(tokenizers.models.BPE())
        self.library.pre_tokenizer = level(add_prefix_space=False)
        self.library.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=self.vocab_size, initial_alphabet=sorted(level.alphabet()), show_progress=False
        )
        self.library.train_from_iterator(_whole_words(texts), trainer)
        self.vocab_size = self.library.get_vocab_size()

    def encode(self, text: str | bytes) -> np.ndarray:
        text = _text(text if isinstance(text, bytes) else _utf8(text))
        return np.array(self.library.encode(text).ids, dtype=self.dtype)

    def encode_all(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        for some in _batches(_whole_words(texts), 16):
            for encoding in self.library.encode_batch_fast(some):  # on all cores; without offsets
                yield np.array(encoding.ids, dtype=self.dtype)

    def pieces(self) -> list[bytes]:
        byte_of = {char: byte for byte, char in enumerate(_byte_characters())}
        names = (self.library.id_to_token(i) for i in range(self.vocab_size))
        return [bytes(byte_of[char] for char in name) for name in names]

    def save(self, path: str | os.PathLike[str]) -> None:
        self._write(path, self.library.to_str(pretty=True))

    @classmethod
    def read(cls, text: str) -> "BPE":
        """From the text of the library's JSON file. Raises ConfigError where it is no byte-level BPE."""
        data = json.loads(text)
        if (data.get("model") or {}).get("type") != "BPE" or (data.get("decoder") or {}).get("type") != "ByteLevel":
            raise ConfigError("tokenizer: must be a byte-level BPE; got another tokenizer.json. Use tokenizer=bpe.")
        made = cls()
        made.library = _library().Tokenizer.from_str(text)
        made.vocab_size = made.library.get_vocab_size()
        return made


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
        return BPE.read(text)
    name = str(data.get("tokenizer"))
    if name not in TOKENIZERS:
        raise ConfigError(
            f"tokenizer: no tokenizer is called '{name}' here, but '{file}' needs it.{nearest(name, TOKENIZERS)} "
            "If it is your own, name its file in parts=[...]."
        )
    return TOKENIZERS[name].restore(data["state"])


def _library() -> Any:
    """The library `tokenizers`; its threads stay allowed after a fork, where loader workers never encode."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    import tokenizers

    return tokenizers


def _byte_characters() -> list[str]:
    """The character for each byte in a byte-level vocabulary: itself where it prints, else from U+0100 on."""
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte if byte in shown else next(hidden)) for byte in range(256)]


def _points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _utf8(text: str) -> bytes:
    """The bytes of a text; bytes of the command line that were no utf-8 (PEP 383) become themselves again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"tokenizer: text must be Unicode; got half a surrogate pair at character {error.start}. Leave it out."
        ) from None


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"tokenizer: text must be utf-8; got byte 0x{data[error.start]:02X} at position {error.start}. "
            "Use tokenizer=byte."
        ) from None


def _whole_words(texts: Iterable[str], size: int = 1 << 16) -> Iterator[str]:
    """The same text in pieces of a little more than `size` characters that tokenize as the whole does.

    The library splits a text into words before it merges, and a word never goes on over a space or a line end that
    follows another character than space; a run of spaces is split by what comes after it, so it is never cut.
    """
    held = ""
    for text in texts:
        held, start = held + text, 0
        while cut := _WORD_END.search(held, start + size):
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


def _batches(items: Iterable[str], size: int) -> Iterator[list[str]]:
    some: list[str] = []
    for item in items:
        some.append(item)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some
