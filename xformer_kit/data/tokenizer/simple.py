"""Tokens that are bytes or characters: nothing to learn but an alphabet."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from xformer_kit.data.tokenizer.base import TOKENIZERS, Tokenizer, as_text, utf8
from xformer_kit.registry import ConfigError


@TOKENIZERS.register("byte", also_called=("utf8", "bytes"))
class Byte(Tokenizer):
    """One token per byte of utf-8: 256 ids, nothing to learn, any text (Xue et al., 2022, arXiv:2105.13626)."""

    vocab_size = 256

    def __init__(self) -> None:
        pass

    def encode(self, text: str | bytes) -> np.ndarray:
        return np.frombuffer(text if isinstance(text, bytes) else utf8(text), dtype=np.uint8)

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
        text = text if isinstance(text, str) else as_text(text)
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


def _points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
