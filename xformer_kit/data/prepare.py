"""How does a corpus become tokens on the disk? Once: a tokenizer is fitted, the text is encoded piece by piece, and the
result is kept under the fingerprint of what went into it."""

import hashlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.corpus import CORPORA, Corpus, PairCorpus
from xformer_kit.data.documents import write_documents
from xformer_kit.data.labelled import labelled
from xformer_kit.data.meter import Meter
from xformer_kit.data.pairs import SIDES, Pairs, Ragged, write_pairs
from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer, load_tokenizer
from xformer_kit.data.windows import Windows
from xformer_kit.registry import ConfigError, Registry

FORMAT = 1  # of the files in the cache and of the text that our corpora give; a change makes new fingerprints
SOURCE_TOKENIZER = "source_tokenizer.json"  # beside tokenizer.json, where sources have one of their own


@dataclass(frozen=True)
class Prepared:
    """A corpus as a run reads it."""

    tokenizer: Tokenizer  # of a text, or of the targets of pairs
    fingerprint: str  # sha256 of text, split, tokenizer and format; the same wherever the files lie
    train: Any  # Windows, Pairs, Labelled
    valid: Any
    folder: Path | None  # in the cache
    test: Any = None  # where the corpus has such a split
    others: Mapping[str, Any] = field(default_factory=dict)  # splits beside these, such as COGS' gen
    source_tokenizer: Tokenizer | None = None  # of the sources of pairs: the same object where it is shared
    dropped: Mapping[str, int] = field(default_factory=dict)  # "train/too_long", "valid/empty", ... -> pairs
    unknown: Mapping[str, int] = field(default_factory=dict)  # "valid", "train/source", ... -> tokens that stand for it


def prepare(config: Mapping[str, Any]) -> Prepared:
    """The tokens that a config asks for: from the cache, else prepared now, in bounded memory.

    Reads config["data"] (the corpus with its options; seq_len, too_long, cache), config["tokenizer"], and of
    config["model"], where it is given, whether there is an encoder. Safe when several processes call it at once. Raises
    ConfigError for text that cannot be read, encoded, or is shorter than a window, and for pairs that are too long.
    """
    data = config["data"]
    options = CORPORA.options(data["name"])
    corpus = CORPORA.create({"name": data["name"]} | {key: data[key] for key in data if key in options})
    if corpus.form == "labelled":
        content = cache.digest([FORMAT, corpus.fingerprint(), _code(CORPORA, data["name"])])
        return Prepared(fingerprint=content, **labelled(corpus, data["seq_len"]))
    node = TOKENIZERS.defaults(config["tokenizer"]["name"]) | dict(config["tokenizer"])
    one = node.pop("shared", True) or corpus.form != "pairs"
    base = cache.home(data.get("cache"))
    stamp = [FORMAT, data["name"], _code(CORPORA, data["name"]), corpus.stamp()]
    content = cache.remembered(base, stamp, corpus.fingerprint)
    apart = bool(data.get("documents"))
    content = cache.digest([content, "documents"]) if apart else content
    named = TOKENIZERS.create(node).content()  # of a file that the options name
    known = [FORMAT, content, node, _code(TOKENIZERS, node["name"]), *([] if one else ["each"])]
    fingerprint = cache.digest(known if named is None else [*known, named])

    def make(folder: Path) -> dict[str, Any]:
        meta = _make(folder, corpus, [TOKENIZERS.create(node) for _ in range(1 if one else 2)], apart)
        if corpus.stamp() != stamp[-1]:
            raise ConfigError("data: the text must stay as it is while it is read; it was changed. Start again.")
        return meta | {"format": FORMAT, "fingerprint": fingerprint, "corpus": data["name"], "tokenizer": node}

    folder = base / fingerprint[:32]
    meta = cache.obtain(folder, make)
    tokenizer = load_tokenizer(folder)
    source = tokenizer if one else load_tokenizer(folder / SOURCE_TOKENIZER)
    splits = _pairs(config, folder, meta, tokenizer) if corpus.form == "pairs" else _windows(config, folder, meta)
    dropped = {
        f"{split}/{reason}": count
        for split, said in meta["splits"].items()
        for reason, count in ({"empty": said.get("empty", 0)} | getattr(splits[split], "dropped", {})).items()
        if count
    }
    others = {split: splits.pop(split) for split in set(splits) - {"train", "valid", "test"}}
    said: dict[str, Any] = {"source_tokenizer": source, "dropped": dropped, "others": others}
    said["unknown"] = meta.get("unknown", {})
    return Prepared(tokenizer, fingerprint, folder=folder, **said, **splits)


def _windows(config: Mapping[str, Any], folder: Path, meta: Mapping[str, Any]) -> dict[str, Windows]:
    return {
        split: Windows(
            folder / f"{split}.bin", meta["dtype"], **said, seq_len=config["data"]["seq_len"], whole=split != "train"
        )
        for split, said in meta["splits"].items()
    }


def _pairs(config: Mapping[str, Any], folder: Path, meta: Mapping[str, Any], tokenizer: Tokenizer) -> dict[str, Pairs]:
    data = config["data"]
    together = "encoder" not in config.get("model", {"encoder": {}})  # a decoder alone reads both sides as one stream

    def opened(split: str, said: Mapping[str, Any]) -> Pairs:
        source, target = (Ragged(folder / f"{split}.{side}", **said[side]) for side in SIDES)
        return Pairs(source, target, split, data["seq_len"], data.get("too_long") or "error", tokenizer, together)

    return {split: opened(split, said) for split, said in meta["splits"].items()}


def _make(folder: Path, corpus: Corpus, tokenizers: list[Tokenizer], apart: bool) -> dict[str, Any]:
    """Write the tokenizers and the ids of every split; returns what there is to know of them.

    `tokenizers` is one, or one for the targets and one for the sources; with `apart`, documents of a text are kept apart.
    """
    sides = (None,) if len(tokenizers) == 1 else ("target", "source")
    for tokenizer, side in zip(tokenizers, sides, strict=True):
        if tokenizer.learns_from:
            what = f"Learning the tokens of '{_name(tokenizer)}'{f' on the {side}s' if side else ''}"
            with Meter(what, corpus.size() // len(sides)) as meter:
                there = corpus.splits if "valid" in tokenizer.learns_from else tokenizer.learns_from  # all, or training
                said = (corpus.texts(split) if side is None else corpus.texts(split, side) for split in there)  # type: ignore[call-arg]
                tokenizer.fit(meter(text for texts in said for text in texts))
    with cache.writing(folder.parent):
        tokenizers[0].save(folder / "tokenizer.json")
        if len(tokenizers) > 1:
            tokenizers[1].save(folder / SOURCE_TOKENIZER)
    with Meter("Tokenizing", corpus.size()) as meter:
        if isinstance(corpus, PairCorpus) and corpus.form == "pairs":
            source, target = tokenizers[-1], tokenizers[0]
            splits = {s: write_pairs(folder, s, source, target, meter(corpus.pairs(s))) for s in corpus.splits}
        else:
            encode = write_documents if apart else _encode
            splits = {
                split: encode(folder / f"{split}.bin", tokenizers[0], meter(corpus.texts(split)))
                for split in corpus.splits
            }
    tokenizer = tokenizers[0]
    return {
        "dtype": tokenizer.dtype.str,
        "vocab_size": tokenizer.vocab_size,
        "splits": splits,
        "unknown": _unknown(folder, tokenizers),
    }


def _unknown(folder: Path, tokenizers: list[Tokenizer]) -> dict[str, int]:
    """How many tokens of each file of ids stand for what its tokenizer does not know; files with none are left out."""
    counts: dict[str, int] = {}
    for file in sorted(folder.glob("*.bin")):
        tokenizer = tokenizers[-1] if file.stem.endswith(".source") else tokenizers[0]
        if tokenizer.unknown_id is not None and file.stat().st_size:
            ids = np.memmap(file, dtype=tokenizer.dtype, mode="r")
            count = sum(tokenizer.count_unknown(ids[i : i + 2**20]) for i in range(0, len(ids), 2**20))
            counts |= {file.stem.replace(".", "/"): count} if count else {}
    return counts


def _encode(path: Path, tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, int]:
    """Write the ids of a text one after the other; counts the tokens, and the bytes of all but the first."""
    tokens = size = 0
    with cache.writing(path.parent.parent):
        file = open(path, "wb", buffering=0)  # noqa: SIM115, closed below
    with file:
        for ids in tokenizer.encode_all(texts):
            size += tokenizer.count_bytes(ids if tokens else ids[1:], goes_on=True)
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
