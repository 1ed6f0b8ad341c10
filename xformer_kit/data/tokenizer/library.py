"""Base of the tokenizers of the library `tokenizers`, which are saved as its tokenizer.json."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.plain import Plain
from xformer_kit.data.tokenizer.base import Ids, Stream, Tokenizer, flat
from xformer_kit.data.tokenizer.decoding_rule import (
    DecodingRule,
    decoding_rule,
    implied_decoder,
    step_types,
    without_prefix,
)
from xformer_kit.data.tokenizer.encoding import Encoding
from xformer_kit.data.tokenizer.special_tokens import special_names, without_specials
from xformer_kit.data.tokenizer.texts import as_text, batches, utf8, whole_words
from xformer_kit.registry import config_error

NO_WORDS = {"type": "WordLevel", "vocab": {}, "unk_token": ""}  # a model


class LibraryTokenizer(Tokenizer):
    """Base of the tokenizers that the library fits and runs. A tokenizer defines `fit` and
    `recognises`.

    If there is a token for each of the 256 bytes, any bytes can be encoded: bytes that are not
    utf-8 separately.
    """

    library: Any = None  # a tokenizers.Tokenizer, once fitted
    decodes: bool = True  # whether the file states how tokens are joined to a text
    # characters that are encoded as bytes, without the library
    byte_encoded: re.Pattern[str] = re.compile("[\udc80-\udcff]")
    # positions at which a long text may be cut; None: before a space or a line end
    boundary: re.Pattern[str] | None = None
    # types of normalizer, pre_tokenizer, model and decoder in the files of this class
    types: tuple[str | None, ...] = ()

    def adopt(self, library: Any) -> None:
        """Sets a fitted `tokenizers.Tokenizer` and the attributes that follow from it, such as
        vocab_size. It is changed in place: no truncation, no padding, and text is never encoded to
        special tokens.
        """
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True
        data = json.loads(library.to_str())
        if data["decoder"] is None and (decoder := implied_decoder(data)):
            data["decoder"] = decoder
            library.decoder = from_data(data | {"model": NO_WORDS, "added_tokens": []}).decoder
        self.decodes = data["decoder"] is not None or data["model"]["type"] == "WordLevel"
        self.library, self.model = library, data["model"]
        self.added = {token["id"]: token for token in data["added_tokens"]}
        self.rule: DecodingRule | None = decoding_rule(data, library.decoder)
        self.spaced = self.rule is not None and self.rule.spaced
        vocabulary = library.get_vocab()
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        unknown = self.model.get("unk_token")
        self.unknown_id = self.model.get("unk_id") if unknown is None else vocabulary.get(unknown)
        if self.model["type"] == "Unigram" and self.unknown_id is None:
            raise config_error(
                "tokenizer",
                "a tokenizer.json with a Unigram model must have its unk_id",
                "null",
                "Set it to the id of a token for unknown text.",
            )
        self.bytes = self._byte_ids(vocabulary)
        special = special_names(data)
        self.special_ids = {i for i, token in self.added.items() if token["content"] in special}
        self.special_ids.discard(self.unknown_id)
        if self.bytes is not None and (
            self.model["type"] == "Unigram" or self.model.get("ignore_merges")
        ):
            # the name of a byte's token in a text is text
            self.byte_encoded = re.compile(
                f"{type(self).byte_encoded.pattern}|<(?=0x[0-9A-F]{{2}}>)"
            )
        encoded = without_specials(data)
        continuing, conditional = without_prefix(encoded, self.bytes is not None)
        # whether " a" and "a" have the same tokens
        prepends = "Prepend" in step_types(data, "normalizer")  # also to a text with a space
        self.hides_space = conditional and self.spaced and not prepends
        # the tokenizer that encodes a text, and that of pieces of it after the first
        self._first = library if encoded is data else from_data(encoded)
        self._continuing = self._first if continuing == encoded else from_data(continuing)

    def _byte_ids(self, vocabulary: Mapping[str, int]) -> list[int] | None:
        """Returns the id of each byte's token; None if one is missing."""
        if self.rule is None or self.rule.byte_name is None:
            return None
        names = [*map(self.rule.byte_name, range(256))]
        return [vocabulary[name] for name in names] if vocabulary.keys() >= set(names) else None

    def encode(self, text: str | bytes) -> np.ndarray:
        runs = self._runs(self._with_surrogates(text), self._first)
        return np.array([i for run in runs for i in run.ids], dtype=self.dtype)

    def encoding(self, text: str) -> Encoding:
        return self._encoding(text, self._first)

    def _encoding(self, text: str, encoder: Any) -> Encoding:
        """Returns the encoding of a text, or of a later piece, with the encoder of either."""
        return self._with_sizes(text, [*self._runs(self._with_surrogates(text), encoder)], encoder)

    def _with_sizes(self, text: str, runs: list["Run"], encoder: Any) -> Encoding:
        """Returns the encoding of a text: by the bytes of its tokens if they spell it, else by the
        spans of characters of the library.
        """
        ids = np.array([i for run in runs for i in run.ids], dtype=self.dtype)
        if spelled := self._spelled(text, ids, encoder):
            return spelled
        return Encoding.of_spans(text, ids, np.array([span for run in runs for span in run.spans]))

    def _spelled(self, text: str, ids: np.ndarray, encoder: Any) -> Encoding | None:
        """Returns the encoding of a text that the bytes of its tokens spell; None if they do
        not.
        """
        data = utf8(text)
        if self.rule is None or self.to_bytes(ids, encoder is not self._first) != data:
            return None
        lengths = self._lengths[ids]
        if excess := lengths.sum() - len(data):  # the space that decoding omits
            lengths[(lengths > 0).argmax()] -= excess
        return Encoding.of_lengths(text, ids, lengths)

    def _with_surrogates(self, text: str | bytes) -> str:
        """Returns the text with a lone surrogate for each byte that is not utf-8. Raises
        ConfigError for such bytes if there are no tokens of bytes.
        """
        data = text if isinstance(text, bytes) else utf8(text)
        return as_text(data) if self.bytes is None else data.decode("utf-8", "surrogateescape")

    def _runs(self, text: str, encoder: Any) -> Iterator["Run"]:
        """Yields the runs of a text, which are encoded separately. encoder: of a text, or of later
        pieces.
        """
        start = 0
        if self.bytes is not None:
            for match in self.byte_encoded.finditer(text):
                yield from self._run(text[start : match.start()], start, encoder)
                data = match[0].encode("utf-8", "surrogateescape")
                yield Run([self.bytes[byte] for byte in data], match.start())
                start, encoder = match.end(), self._continuing
        yield from self._run(text[start:], start, encoder)

    def _run(self, text: str, start: int, encoder: Any) -> Iterator["Run"]:
        """Yields a run without bytes that are encoded separately; none if it is empty."""
        if not text:
            return
        doubled = self.hides_space and encoder is self._first and text[0] == " "
        try:
            encoding = encoder.encode(" " * doubled + text, add_special_tokens=False)
        except Exception as error:
            raise self._encoding_error([text], error) from None
        yield Run(encoding.ids, start - doubled, encoding)

    def _encoding_error(self, texts: list[str], error: Exception) -> Exception:
        """Returns the error for texts that the library cannot encode."""
        return config_error(
            "tokenizer", "the text must be one that it can encode", f"{texts[0][:40]!r} ({error})"
        )

    def encode_all(self, texts: Iterable[str]) -> Iterator[Encoding]:
        pieces = whole_words(texts, end=self.boundary)
        yield from map(self.encoding, islice(pieces, 1))
        for batch in batches(pieces, 16):
            yield from self._encode_batch(batch, self._continuing)

    def encode_each(self, texts: Iterable[str]) -> Iterator[Encoding]:
        for batch in batches(texts, 256):
            yield from self._encode_batch(batch, self._first)

    def _encode_batch(self, texts: list[str], encoder: Any) -> Iterator[Encoding]:
        """Yields the encoding of each text, on all cores if the library can encode complete
        texts.
        """
        if self.hides_space or (
            self.bytes is not None and any(map(self.byte_encoded.search, texts))
        ):
            yield from (self._encoding(text, encoder) for text in texts)
            return
        # the fast method has no spans, which texts that are spelled by bytes do not need
        fast = self.bytes is not None
        encode = encoder.encode_batch_fast if fast else encoder.encode_batch
        try:
            encodings = encode(texts, add_special_tokens=False)
        except Exception as error:
            raise self._encoding_error(texts, error) from None
        for text, encoding in zip(texts, encodings, strict=True):
            if fast and text:
                ids = np.array(encoding.ids, dtype=self.dtype)
                yield self._spelled(text, ids, encoder) or self._encoding(text, encoder)
            else:
                yield self._with_sizes(text, [Run(encoding.ids, 0, encoding)] * bool(text), encoder)

    def pieces(self) -> list[bytes]:
        return [self._token_bytes(i) for i in range(self.vocab_size)]

    def _token_bytes(self, i: int) -> bytes:
        """Returns the bytes of token i; none for a special token."""
        name, added = self.library.id_to_token(i), self.added.get(i)
        if name is None or i in self.special_ids:
            return b""
        if added is not None and not added["special"] and i != self.unknown_id:
            return name.encode()
        if self.rule is None:
            suffix = self.model.get("end_of_word_suffix")
            return (name.replace(suffix, " ") if suffix else self.library.decode([i])).encode()
        return self.rule.token_bytes(name)

    def word_starts(self, ids: Ids) -> np.ndarray:
        if self.rule is None or not self.rule.inner_prefix:
            return super().word_starts(ids)
        return self._begins_word[np.minimum(flat(ids), self.vocab_size)]

    @cached_property
    def _begins_word(self) -> np.ndarray:
        """Whether each token begins a word, by its name; punctuation marks do."""
        names = (self.library.id_to_token(i) or "" for i in range(self.vocab_size))
        return np.array([not name.startswith(self.rule.inner_prefix) for name in names] + [True])

    def misread(self, text: str) -> str | None:
        """Returns what the decoder makes of a text in lower case if it has other letters or other
        tokens; None if it has the same, or if a part of the text has no token.
        """
        ids, *_, dropped = self.encoding(text)
        decoded = self.decode(ids)
        same_letters = "".join(decoded.split()).lower() == "".join(text.split())
        same = same_letters and np.array_equal(self.encode(decoded), ids)
        return None if same or dropped or self.count_unknown(ids) else decoded

    def to_bytes(self, ids: Ids, continuation: bool = False) -> bytes:
        if self.rule is not None:
            return super().to_bytes(ids, continuation)
        known = [i for i in flat(ids).tolist() if i < self.vocab_size]
        text_ids = [i for i in known if i not in self.special_ids]
        return self.library.decode(text_ids, skip_special_tokens=False).encode()

    def stream(self, continuation: bool = False) -> Stream:
        return Stream(self, continuation) if self.rule is not None else RedecodingStream(self)

    def __reduce__(self) -> Any:
        """Pickles the library's tokenizer as text, for another process."""
        special = {name: getattr(self, name) for name in ("specials", "published", "around")}
        return _unpickle, (type(self), self.library.to_str(), special)

    def save(self, path: Path) -> None:
        cache.write(path, self.library.to_str(pretty=True) + "\n")

    @classmethod
    def recognises(cls, data: Plain) -> bool:
        steps = (data.get(key) for key in ("normalizer", "pre_tokenizer", "model", "decoder"))
        types = tuple(None if step is None else step.get("type") for step in steps)
        return types == cls.types and not data.get("added_tokens")

    @classmethod
    def read(cls, text: str, file: Path) -> "LibraryTokenizer":
        """Loads the text of a JSON file of the library. Raises ConfigError for another file."""
        tokenizer = cls.__new__(cls)
        tokenizer.adopt(parse_tokenizer(text, "tokenizer", file))
        return tokenizer


class Run(NamedTuple):
    """The tokens of a run of characters of a text."""

    ids: list[int]
    start: int  # index of the first character
    encoding: Any = None  # of the library; None for one character, as bytes

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first character of each token in the text, and the one after its last."""
        if self.encoding is None:
            return [(self.start, self.start + 1)] * len(self.ids)
        return [(self.start + a, self.start + b) for a, b in self.encoding.offsets]


def _unpickle(
    component: type[LibraryTokenizer], text: str, special: Mapping[str, Any]
) -> LibraryTokenizer:
    """Returns the tokenizer from what `__reduce__` pickled."""
    tokenizer = component.read(text, Path())
    vars(tokenizer).update(special)
    return tokenizer


class RedecodingStream(Stream):
    """A stream for decoders in which the text of a token depends on others: all ids are decoded in
    each call, and the common prefix of two successive decodings is final.
    """

    def __init__(self, tokenizer: Tokenizer):
        super().__init__(tokenizer)
        self.ids: list[int] = []
        self.text = ""
        self.returned = 0  # characters of the text that were returned

    def __call__(self, ids: Ids) -> str:
        self.ids += flat(ids).tolist()
        before, self.text = self.text, self.tokenizer.decode(self.ids)
        shared = len(commonprefix([before, self.text]).rstrip("\ufffd"))  # noqa: RUF071, of texts
        return self._return_until(max(shared, self.returned))

    def end(self) -> str:
        return self._return_until(len(self.text))

    def _return_until(self, until: int) -> str:
        start, self.returned = self.returned, until
        return self.text[start:until]


def tokenizers_library() -> Any:
    """Imports the library `tokenizers`, with threads also after a fork, since loader workers do not
    encode.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    import tokenizers

    return tokenizers


def parse_tokenizer(text: str, config_path: str, file: object) -> Any:
    """Returns the library's tokenizer from the text of a JSON file. Raises ConfigError, at the
    path `config_path`, for another file.
    """
    try:
        return tokenizers_library().Tokenizer.from_str(text)
    except BaseException as error:  # the library raises nothing more specific, and may panic
        if not isinstance(error, Exception) and "Panic" not in type(error).__name__:
            raise
        # such as a model's config.json, for which the library has another reason
        has_no_model = text.lstrip().startswith("{") and '"model"' not in text
        raise config_error(
            config_path,
            "must be a tokenizer.json of the library tokenizers",
            f"'{file}' ({'it has no key model' if has_no_model else error})",
            "Give one, or save it again with a current version.",
        ) from None


def from_data(data: Plain) -> Any:
    """Returns the library's tokenizer from the plain values of a JSON file."""
    tokenizer = tokenizers_library().Tokenizer.from_str(json.dumps(data))
    tokenizer.encode_special_tokens = True
    return tokenizer
