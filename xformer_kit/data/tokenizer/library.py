"""Tokenizers of the library `tokenizers`: the bytes of their tokens, and their tokenizer.json."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from os.path import commonprefix
from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.plain import Plain
from xformer_kit.data.refused import refused
from xformer_kit.data.tokenizer.base import Ids, Stream, Tokenizer, flat
from xformer_kit.data.tokenizer.pieces import Rule, rule_of, without_prefix
from xformer_kit.data.tokenizer.texts import as_text, batches, utf8, whole_words


class Library(Tokenizer):
    """Base: a tokenizer that the library fits, reads and runs. It defines `fit` and `recognises`.

    If there is a token for each of the 256 bytes, any bytes can be encoded: those that are no utf-8
    one by one.
    """

    library: Any = None  # a tokenizers.Tokenizer, once fitted
    # characters that are encoded byte by byte, without the library
    apart: re.Pattern[str] = re.compile("[\udc80-\udcff]")
    # where a long text may be cut; None: before a space or a line end
    cut: re.Pattern[str] | None = None
    # types of what this class saves: normalizer, pre_tokenizer, model and decoder
    types: tuple[str | None, ...] = ()

    def adopt(self, library: Any) -> None:
        """Take over a fitted tokenizer: never cut, never padded, and no text is one of its special
        tokens.
        """
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True
        data = json.loads(library.to_str())
        self.library, self.model = library, data["model"]
        self.added = {token["id"]: token for token in data["added_tokens"]}
        self.rule: Rule | None = rule_of(data, library.decoder)
        self.spaced = self.rule is not None and self.rule.spaced
        vocabulary = library.get_vocab()
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        unknown = self.model.get("unk_token")
        self.unknown_id = self.model.get("unk_id") if unknown is None else vocabulary.get(unknown)
        self.bytes = self._byte_ids(vocabulary)
        inside, hidden = without_prefix(data, self.bytes is not None)
        self.hides = hidden and self.spaced  # " a" would be the same tokens as "a"
        # for pieces of a text after the first
        self._going_on = library if inside == data else _made(inside)

    def _byte_ids(self, vocabulary: Mapping[str, int]) -> list[int] | None:
        """The token of each byte, if all exist."""
        if self.rule is None or self.rule.byte is None:
            return None
        names = [self.rule.byte(byte) for byte in range(256)]
        return [vocabulary[name] for name in names] if vocabulary.keys() >= set(names) else None

    def encode(self, text: str | bytes) -> np.ndarray:
        return np.array(self._ids(self._readable(text), self.library), dtype=self.dtype)

    def _readable(self, text: str | bytes) -> str:
        """Text in which a lone surrogate stands for a byte that is no utf-8. Raises ConfigError if
        there are no tokens of bytes for it.
        """
        data = text if isinstance(text, bytes) else utf8(text)
        return as_text(data) if self.bytes is None else data.decode("utf-8", "surrogateescape")

    def _ids(self, text: str, using: Any) -> list[int]:
        """The ids of readable text, `using` the tokenizer of first or of later pieces of a text."""
        ids: list[int] = []
        at = 0
        if self.hides and using is self.library and text[:1] == " ":
            text = " " + text
        if self.bytes is not None:
            for match in self.apart.finditer(text):
                ids += self._run(text[at : match.start()], using)
                ids += [self.bytes[byte] for byte in match[0].encode("utf-8", "surrogateescape")]
                at, using = match.end(), self._going_on
        return ids + self._run(text[at:], using)

    def _run(self, text: str, using: Any) -> list[int]:
        if not text:
            return []
        try:
            return using.encode(text, add_special_tokens=False).ids
        except Exception as error:
            raise self._cannot([text], error) from None

    def _cannot(self, texts: list[str], error: Exception) -> Exception:
        """The error for texts that the library cannot encode."""
        return refused(
            "tokenizer", "the text must be one that it can encode", f"{texts[0][:40]!r} ({error})"
        )

    def encode_all(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        pieces = whole_words(texts, end=self.cut)
        yield from map(self.encode, islice(pieces, 1))
        for some in batches(pieces, 16):
            yield from self._many(some, self._going_on)

    def encode_each(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        for some in batches(texts, 256):
            yield from self._many(some, self.library)

    def _many(self, texts: list[str], using: Any) -> Iterator[np.ndarray]:
        """The ids of each text; on all cores if the library can encode them whole."""
        if self.hides or (self.bytes is not None and any(map(self.apart.search, texts))):
            lists = (self._ids(self._readable(text), using) for text in texts)
        else:
            try:
                # without offsets
                encodings = using.encode_batch_fast(texts, add_special_tokens=False)
            except Exception as error:
                raise self._cannot(texts, error) from None
            both = zip(texts, encodings, strict=True)
            lists = (encoding.ids if text else [] for text, encoding in both)
        return (np.array(ids, dtype=self.dtype) for ids in lists)

    def pieces(self) -> list[bytes]:
        return [self._piece(i) for i in range(self.vocab_size)]

    def _piece(self, i: int) -> bytes:
        name, added = self.library.id_to_token(i), self.added.get(i)
        if name is None:
            return b""
        if added is not None and i != self.unknown_id:
            return b"" if added["special"] else name.encode()
        if self.rule is None:
            suffix = self.model.get("end_of_word_suffix")
            return (name.replace(suffix, " ") if suffix else self.library.decode([i])).encode()
        return self.rule.spell(name)

    def word_starts(self, ids: Ids) -> np.ndarray:
        if self.rule is None or not self.rule.continues:
            return super().word_starts(ids)
        return self._begins[np.minimum(flat(ids), self.vocab_size)]

    @cached_property
    def _begins(self) -> np.ndarray:
        """Whether each token begins a word, by its name; also a punctuation mark does."""
        names = (self.library.id_to_token(i) or "" for i in range(self.vocab_size))
        return np.array([not name.startswith(self.rule.continues) for name in names] + [True])

    def to_bytes(self, ids: Ids, goes_on: bool = False) -> bytes:
        if self.rule is not None:
            return super().to_bytes(ids, goes_on)
        hidden = {i for i, token in self.added.items() if token["special"]} - {self.unknown_id}
        shown = [i for i in flat(ids).tolist() if i < self.vocab_size and i not in hidden]
        return self.library.decode(shown, skip_special_tokens=False).encode()

    def count_bytes(self, ids: Ids, goes_on: bool = False) -> int:
        return len(self.to_bytes(ids)) if self.rule is None else super().count_bytes(ids, goes_on)

    def stream(self, goes_on: bool = False) -> Stream:
        return Stream(self, goes_on) if self.rule is not None else Whole(self)

    def __reduce__(self) -> Any:
        """For another process: the library's tokenizer as text."""
        return _unpickled, (type(self), self.library.to_str(), self.specials)

    def save(self, path: Path) -> None:
        cache.write(path, self.library.to_str(pretty=True) + "\n")

    @classmethod
    def recognises(cls, data: Plain) -> bool:
        steps = (data.get(key) for key in ("normalizer", "pre_tokenizer", "model", "decoder"))
        types = tuple(None if step is None else step.get("type") for step in steps)
        return types == cls.types and not data.get("added_tokens")

    @classmethod
    def read(cls, text: str, file: Path) -> "Library":
        """From the text of the library's JSON file. Raises ConfigError for another file."""
        made = cls.__new__(cls)
        made.adopt(parsed(text, "tokenizer", file))
        return made


def _unpickled(component: type[Library], text: str, specials: tuple[str, ...]) -> Library:
    made = component.read(text, Path())
    made.specials = specials
    return made


class Whole(Stream):
    """For a decoder whose text of a token depends on others: the common beginning of two successive
    decodings is final.
    """

    def __init__(self, tokenizer: Tokenizer):
        super().__init__(tokenizer)
        self.ids: list[int] = []
        self.text = ""
        self.given = 0

    def __call__(self, ids: Ids) -> str:
        self.ids += flat(ids).tolist()
        before, self.text = self.text, self.tokenizer.decode(self.ids)
        shared = len(commonprefix([before, self.text]).rstrip("\ufffd"))  # noqa: RUF071, of texts
        return self._give(max(shared, self.given))

    def end(self) -> str:
        return self._give(len(self.text))

    def _give(self, until: int) -> str:
        start, self.given = self.given, until
        return self.text[start:until]


def library() -> Any:
    """The library `tokenizers`; its threads stay allowed after a fork, since loader workers never
    encode.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    import tokenizers

    return tokenizers


def parsed(text: str, at: str, file: object) -> Any:
    """The library's tokenizer of a JSON file's text. Raises ConfigError, at the config path `at`,
    for another file.
    """
    try:
        return library().Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing more specific
        raise refused(
            at,
            "must be a tokenizer.json of the library tokenizers",
            f"'{file}' ({error})",
            "Save it again with a version of today.",
        ) from None


def _made(data: Plain) -> Any:
    made = library().Tokenizer.from_str(json.dumps(data))
    made.encode_special_tokens = True
    return made
