"""How does a corpus become tokens on the disk? Once: a tokenizer is fitted, the text is encoded piece by piece, and the
result is kept under the fingerprint of what went into it."""

import hashlib
import inspect
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xformer_kit.data import cache
from xformer_kit.data.corpus import CORPORA, Corpus
from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer, load_tokenizer
from xformer_kit.data.windows import Windows
from xformer_kit.registry import ConfigError, Registry

FORMAT = 1  # of the files in the cache and of the text that our corpora give; a change makes new fingerprints
PATIENCE = 1.0  # seconds before a progress bar appears


@dataclass(frozen=True)
class Prepared:
    """A corpus as a run reads it."""

    tokenizer: Tokenizer
    fingerprint: str  # sha256 of text, split, tokenizer and format; the same wherever the files lie
    train: Windows
    valid: Windows
    folder: Path  # in the cache


def prepare(config: Mapping[str, Any]) -> Prepared:
    """The tokens that a config asks for: from the cache, else prepared now, in bounded memory.

    Reads config["data"] (the corpus with its options; seq_len, cache) and config["tokenizer"]. Safe when several
    processes call it at once. Raises ConfigError for text that cannot be read, encoded, or is shorter than a window.
    """
    data = config["data"]
    options = CORPORA.options(data["name"])
    corpus = CORPORA.create({"name": data["name"]} | {key: data[key] for key in data if key in options})
    node = TOKENIZERS.defaults(config["tokenizer"]["name"]) | dict(config["tokenizer"])
    base = cache.home(data.get("cache"))
    stamp = [FORMAT, data["name"], _code(CORPORA, data["name"]), corpus.stamp()]
    content = cache.remembered(base, stamp, corpus.fingerprint)
    fingerprint = cache.digest([FORMAT, content, node, _code(TOKENIZERS, node["name"])])

    def make(folder: Path) -> dict[str, Any]:
        meta = _make(folder, corpus, TOKENIZERS.create(node))
        if corpus.stamp() != stamp[-1]:
            raise ConfigError("data: the text must stay as it is while it is read; it was changed. Start again.")
        return meta | {"format": FORMAT, "fingerprint": fingerprint, "corpus": data["name"], "tokenizer": node}

    folder = base / fingerprint[:32]
    meta = cache.obtain(folder, make)
    train, valid = (
        Windows(folder / f"{split}.bin", meta["dtype"], **meta["splits"][split], seq_len=data["seq_len"], whole=whole)
        for split, whole in (("train", False), ("valid", True))
    )
    return Prepared(load_tokenizer(folder), fingerprint, train, valid, folder)


def _make(folder: Path, corpus: Corpus, tokenizer: Tokenizer) -> dict[str, Any]:
    """Write tokenizer.json, train.bin and valid.bin; returns what there is to know of them."""
    if tokenizer.learns_from:
        with _Meter(f"Learning the tokens of '{_name(tokenizer)}'", corpus.size()) as meter:
            tokenizer.fit(meter(text for split in tokenizer.learns_from for text in corpus.texts(split)))
    with cache.writing(folder.parent):
        tokenizer.save(folder / "tokenizer.json")
    with _Meter("Tokenizing", corpus.size()) as meter:
        splits = {
            split: _encode(folder / f"{split}.bin", tokenizer, meter(corpus.texts(split)))
            for split in ("train", "valid")
        }
    return {"dtype": tokenizer.dtype.str, "vocab_size": tokenizer.vocab_size, "splits": splits}


def _encode(path: Path, tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, int]:
    """Write the ids of a text one after the other; counts the tokens, and the bytes of all but the first."""
    tokens = size = 0
    with cache.writing(path.parent.parent):
        file = open(path, "wb", buffering=0)  # noqa: SIM115, closed below
    with file:
        for ids in tokenizer.encode_all(texts):
            size += tokenizer.count_bytes(ids if tokens else ids[1:])
            tokens += len(ids)
            with cache.writing(path.parent.parent):
                ids.astype(tokenizer.dtype, copy=False).tofile(file)
    return {"tokens": tokens, "bytes": size}


def _name(tokenizer: Tokenizer) -> str:
    return next(name for name, part in TOKENIZERS.items() if part is type(tokenizer))


def _code(registry: Registry, name: str) -> str | None:
    """sha256 of the file of a user's own part: changed code is other data. None for the parts of this package."""
    module = registry[name].__module__
    if module.split(".")[0] == "xformer_kit":
        return None
    try:
        return hashlib.sha256(inspect.getsource(sys.modules[module]).encode()).hexdigest()
    except (OSError, TypeError, KeyError):
        return module


class _Meter:
    """Text passes through; a bar on stderr shows how much, once it takes longer than a moment and a person may look."""

    def __init__(self, title: str, size: int):
        self.title, self.size, self.done = title, size, 0
        self.shown: Any = None
        self.start = time.monotonic()

    def __enter__(self) -> "_Meter":
        return self

    def __exit__(self, *error: object) -> None:
        if self.shown is not None:
            self.shown.stop()

    def __call__(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            yield text
            self.done += len(text)
            self._show()

    def _show(self) -> None:
        if self.shown is None and (time.monotonic() - self.start < PATIENCE or not sys.stderr.isatty()):
            return
        if self.shown is None:
            from rich.console import Console
            from rich.progress import Progress

            self.shown = Progress(console=Console(stderr=True), transient=True)
            self.shown.start()
            self.bar = self.shown.add_task(self.title, total=self.size or None)
        self.shown.update(self.bar, completed=self.done)
