"""Tokenizers without a library: bytes, characters, words."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal

import numpy as np

from xformer_kit.data.plain import Plain
from xformer_kit.data.tokenizer.base import TOKENIZERS, Tokenizer
from xformer_kit.data.tokenizer.encoding import Encoding, code_points
from xformer_kit.data.tokenizer.texts import as_text, first_few, utf8
from xformer_kit.registry import at_least, config_error


@TOKENIZERS.register("byte", also_called=("utf8", "bytes"))
class Byte(Tokenizer):
    """One token per byte of utf-8: 256 ids, not fitted, for any text (Xue et al., 2022,
    arXiv:2105.13626).
    """

    vocab_size = 256

    def __init__(self) -> None:
        pass

    def encode(self, text: str | bytes) -> np.ndarray:
        return np.frombuffer(text if isinstance(text, bytes) else utf8(text), dtype=np.uint8)

    def pieces(self) -> list[bytes]:
        return [bytes([i]) for i in range(256)]


@TOKENIZERS.register("char", also_called=("character", "characters"))
class Char(Tokenizer):
    """One token per character; the alphabet is all characters of the corpus, in the order of code
    points.

    The alphabet is that of both splits, as in nanoGPT's `data/shakespeare_char/prepare.py`: a
    character that occurs only in the validation text has an id too, but is not trained.
    """

    fit_splits = ("train", "valid")

    def __init__(self) -> None:
        self._set_alphabet("")

    def fit(self, texts: Iterable[str]) -> None:
        self._set_alphabet("".join(sorted(set[str]().union(*texts))))

    def _set_alphabet(self, alphabet: str) -> None:
        self.alphabet = alphabet
        self.vocab_size = len(alphabet)
        points = code_points(alphabet)
        # -1 is unknown; the last entry is for all code points after those of the alphabet
        self._id_of = np.full(int(points.max(initial=0)) + 2, -1, dtype=np.int64)
        self._id_of[points] = np.arange(len(alphabet))

    def encode(self, text: str | bytes) -> np.ndarray:
        text = as_text(text)
        ids = self._id_of[np.minimum(code_points(text), len(self._id_of) - 1)]
        if (ids < 0).any():
            unknown = {text[i] for i in np.flatnonzero(ids < 0).tolist()}
            raise config_error(
                "tokenizer",
                f"the alphabet of 'char' is the {self.vocab_size} characters of its corpus",
                first_few(f"{c!r} (U+{ord(c):04X})" for c in sorted(unknown)),
                "Leave them out of the text, or train with tokenizer=byte.",
            )
        return ids.astype(self.dtype)

    def pieces(self) -> list[bytes]:
        return [c.encode() for c in self.alphabet]

    def state(self) -> Plain:
        return {"alphabet": self.alphabet}

    @classmethod
    def restore(cls, state: Plain) -> "Char":
        tokenizer = cls()
        tokenizer._set_alphabet(state["alphabet"])
        return tokenizer


UNKNOWN = "<unk>"


@TOKENIZERS.register("word", also_called=("words", "whitespace", "white_space"))
class Word(Tokenizer):
    """One token per word, separated by white space; the words of the training split, the most
    frequent first.

    Another word becomes `<unk>`, id 0, which `count_unknown` counts; with unknown=error it is an
    error instead, and there is no such token. The word `<unk>` in a text, as in WikiText, is that
    token. Decoding joins words with one space.
    """

    fit_splits = ("train",)
    spaced = True

    def __init__(
        self,
        *,
        vocab_size: int | None = None,  # maximum number of tokens, with `<unk>`; null is all words
        min_count: int = 1,  # minimum number of occurrences in the training split
        unknown: Literal["error", "token"] = "token",  # other words are an error, or `<unk>`
    ):
        self.max_vocab_size = vocab_size
        self.min_count = min_count
        self.unknown = unknown
        self.reserved = [UNKNOWN] if unknown == "token" else []
        self.unknown_id = 0 if self.reserved else None
        self._set_words([])

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "tokens, `<unk>` and a word", vocab_size=2)
        yield from at_least(options, "time", min_count=1)

    @classmethod
    def of(cls, words: Sequence[str]) -> "Word":
        """Returns the tokenizer of a list of words: word i has id i. Raises ConfigError for a text
        that is not one word, or occurs twice.
        """
        for word, count in Counter(words).items():
            if count > 1 or not isinstance(word, str) or word.split() != [word]:
                raise config_error(
                    "tokenizer",
                    "words must be texts without white space, each once",
                    f"{word!r}",
                    "Change it in the list.",
                )
        return cls.restore({"words": words, "unknown": "error"})

    def fit(self, texts: Iterable[str]) -> None:
        counts = Counter(chain.from_iterable(map(str.split, _ending_with_words(texts))))
        for word in self.reserved:
            del counts[word]
        frequent = (word for word, count in counts.items() if count >= self.min_count)
        words = sorted(frequent, key=lambda word: (-counts[word], word))
        if self.max_vocab_size is not None:
            words = words[: self.max_vocab_size - len(self.reserved)]
        self._set_words(words)

    def _set_words(self, words: Sequence[str]) -> None:
        self.words = [*self.reserved, *words]
        self.vocab_size = len(self.words)
        self._id_of = {word: i for i, word in enumerate(self.words)}

    def encode(self, text: str | bytes) -> np.ndarray:
        words = as_text(text).split()
        default = -1 if self.unknown_id is None else self.unknown_id
        ids = np.array([self._id_of.get(word, default) for word in words], dtype=np.int64)
        if (ids < 0).any():
            raise config_error(
                "tokenizer",
                f"the words of 'word' are the {self.vocab_size} of its list",
                first_few(map(repr, sorted({*words} - self._id_of.keys()))),
                "Leave them out of the text, or train with tokenizer.unknown=token.",
            )
        return ids.astype(self.dtype)

    def encoding(self, text: str) -> Encoding:
        spans = [word.span() for word in re.finditer(r"\S+", text)]
        return Encoding.of_spans(text, self.encode(text), np.array(spans))

    def encode_all(self, texts: Iterable[str]) -> Iterator[Encoding]:
        return map(self.encoding, _ending_with_words(texts))

    def pieces(self) -> list[bytes]:
        return [b" " + word.encode() for word in self.words]

    def state(self) -> Plain:
        return {"words": self.words[len(self.reserved) :], "unknown": self.unknown}

    @classmethod
    def restore(cls, state: Plain) -> "Word":
        tokenizer = cls(unknown=state["unknown"])
        tokenizer._set_words(state["words"])
        return tokenizer


def _ending_with_words(texts: Iterable[str]) -> Iterator[str]:
    """Yields a text in pieces that end with a word, from pieces that may be cut inside words."""
    partial = ""
    for text in texts:
        partial += text
        ended = partial[-1:].isspace()
        complete = partial.rstrip() if ended else "".join(partial.rsplit(maxsplit=1)[:-1])
        yield complete
        partial = partial[len(complete) :]
    yield partial
