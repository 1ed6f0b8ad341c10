"""Tokens that are parts of words, learned by the library `tokenizers`."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from xformer_kit.data.tokenizer.base import TOKENIZERS, Tokenizer, as_text, utf8
from xformer_kit.registry import ConfigError


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
        self.library.train_from_iterator(whole_words(texts), trainer)
        self.vocab_size = self.library.get_vocab_size()

    def encode(self, text: str | bytes) -> np.ndarray:
        text = as_text(text if isinstance(text, bytes) else utf8(text))
        return np.array(self.library.encode(text).ids, dtype=self.dtype)

    def encode_all(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        for some in _batches(whole_words(texts), 16):
            for encoding in self.library.encode_batch_fast(some):  # on all cores; without offsets
                yield np.array(encoding.ids, dtype=self.dtype)

    def encode_each(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        for some in _batches(texts, 256):
            for encoding in self.library.encode_batch_fast(some):
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


def whole_words(texts: Iterable[str], size: int = 1 << 16) -> Iterator[str]:
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
