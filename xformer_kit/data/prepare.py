"""How does a corpus become tokens on the disk? Once: a tokenizer is fitted, the text is encoded
piece by piece, and the result is kept under the fingerprint of what went into it.
"""

import hashlib
import inspect
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.corpus import CORPORA, Corpus, PairCorpus
from xformer_kit.data.corpus.divided import Divided
from xformer_kit.data.corpus.mixture import located
from xformer_kit.data.corpus.text import Text
from xformer_kit.data.documents import write_documents
from xformer_kit.data.labelled import labelled
from xformer_kit.data.learning import Learned, fitted, kept
from xformer_kit.data.meter import Meter
from xformer_kit.data.mixing import Mixed, joined
from xformer_kit.data.overlap import Overlap, counted, training_last
from xformer_kit.data.pairs import SIDES, Pairs, Ragged, write_pairs
from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer
from xformer_kit.data.windows import Windows
from xformer_kit.registry import ConfigError, Registry

# of the files in the cache and of the text that our corpora give; a change makes new fingerprints
FORMAT = 1


@dataclass(frozen=True)
class Prepared:
    """A corpus as a run reads it."""

    tokenizer: Tokenizer  # of a text, or of the targets of pairs
    fingerprint: str  # sha256 of text, split, tokenizer and format; the same wherever the files lie
    train: Any  # Windows, Pairs, Labelled
    valid: Any
    folder: Path | None  # in the cache
    test: Any = None  # where the corpus has such a split
    others: Mapping[str, Any] = field(
        default_factory=dict
    )  # splits beside these, such as COGS' gen
    # of the sources of pairs: the same object where it is shared
    source_tokenizer: Tokenizer | None = None
    dropped: Mapping[str, int] = field(
        default_factory=dict
    )  # "train/too_long", "valid/empty", ... -> pairs
    unknown: Mapping[str, int] = field(
        default_factory=dict
    )  # "valid", "train/source", ... -> tokens that stand for it
    overlap: Mapping[str, Any] = field(
        default_factory=dict
    )  # "valid", ... -> [those in training too, all, "pairs" or ...]


def prepare(config: Mapping[str, Any]) -> Prepared:
    """The tokens that a config asks for: from the cache, else prepared now, in bounded memory.

    Reads config["data"] (the corpus with its options; seq_len, valid_len, too_long, cache),
    config["tokenizer"], and of config["model"], where it is given, whether there is an encoder.
    Safe when several processes call it at once. Raises ConfigError for text that cannot be read,
    encoded, or is shorter than a window, and for pairs that are too long.
    """
    data = config["data"]
    options = CORPORA.options(data["name"])
    corpus = CORPORA.create(
        {"name": data["name"]} | {key: data[key] for key in data if key in options}
    )
    if corpus.form == "labelled":
        content = cache.digest([FORMAT, corpus.fingerprint(), _code(CORPORA, data["name"])])
        return Prepared(fingerprint=content, **labelled(corpus, data["seq_len"]))
    return _mixed(config, corpus) if corpus.of else _one(config, data["name"], corpus)


def _one(
    config: Mapping[str, Any], name: str, corpus: Corpus, learned: Learned | None = None
) -> Prepared:
    """A corpus that is no mixture, with a tokenizer of its own, or with one that was learned from
    others too.
    """
    node, one = _tokenizer_node(config, corpus)
    base, stamp, content = _content(config, name, corpus)
    apart = bool(config["data"].get("documents"))
    text, content = content, cache.digest([content, "documents"]) if apart else content
    known = [
        FORMAT,
        content,
        *_tokenizer_known(node, one),
        *([] if learned is None else [learned.fingerprint]),
    ]
    fingerprint = cache.digest(known)

    def make(folder: Path) -> dict[str, Any]:
        made = (
            fitted(folder, corpus, _fresh(node, one)) if learned is None else learned.saved(folder)
        )
        meta = _make(folder, corpus, made, apart)
        if corpus.stamp() != stamp[-1]:
            raise ConfigError(
                "data: the text must stay as it is while it is read; it was changed. Start again."
            )
        return meta | {
            "format": FORMAT,
            "fingerprint": fingerprint,
            "corpus": name,
            "tokenizer": node,
        }

    folder = base / fingerprint[:32]
    meta = cache.obtain(folder, make)
    _not_empty(corpus, meta["splits"])
    target, source = kept(folder, one)
    splits = (
        _pairs(config, folder, meta, target)
        if corpus.form == "pairs"
        else _windows(config, folder, meta)
    )
    dropped = {
        f"{split}/{reason}": count
        for split, said in meta["splits"].items()
        for reason, count in (
            {"empty": said.get("empty", 0)} | getattr(splits[split], "dropped", {})
        ).items()
        if count
    }
    others = {split: splits.pop(split) for split in set(splits) - {"train", "valid", "test"}}
    said: dict[str, Any] = {"source_tokenizer": source, "dropped": dropped, "others": others}
    said["unknown"] = meta.get("unknown", {})
    said["overlap"] = _overlap(base, stamp, text, corpus, meta)
    return Prepared(target, fingerprint, folder=folder, **said, **splits)


def _not_empty(corpus: Corpus, splits: Mapping[str, Any]) -> None:
    """Raises ConfigError where a split is empty for a cause that only the corpus knows."""
    for split, said in splits.items():
        empty = not (said["source"]["count"] if "source" in said else said["tokens"])
        if empty and isinstance(corpus, Divided) and (fault := corpus.why_empty(split)):
            raise ConfigError(fault)


def _overlap(
    base: Path, stamp: list[Any], text: str, corpus: Corpus, meta: Mapping[str, Any]
) -> dict[str, Any]:
    """Examples of each split that occur in training too: the same from the cache, also from one of
    before they were counted.
    """
    if isinstance(corpus, Text):
        found = cache.remembered(base, ["copies", stamp], lambda: json.dumps(corpus.copies()))
        return dict(json.loads(found))
    if "overlap" in meta:
        return dict(meta["overlap"])
    return dict(
        json.loads(cache.remembered(base, ["overlap", text], lambda: json.dumps(counted(corpus))))
    )


def _mixed(config: Mapping[str, Any], corpus: Any) -> Prepared:
    """The parts of a mixture, each prepared by itself, with one tokenizer that is learned from all
    of them.
    """
    nodes = {
        name: node if isinstance(node, str) else node["name"]
        for name, node in config["data"]["of"].items()
    }
    learned = _learned(config, corpus, nodes)
    parts: dict[str, Prepared] = {}
    for name, part in corpus.of.items():
        try:
            parts[name] = _one(config, nodes[name], part, learned)
        except ConfigError as error:
            raise ConfigError(located(fault, name, nodes[name]) for fault in error.faults) from None
    first = next(iter(parts.values()))
    splits = {
        split: joined({name: getattr(p, split) for name, p in parts.items()})
        for split in ("valid", "test")
    }
    others = dict.fromkeys(split for part in parts.values() for split in part.others)
    return Prepared(
        first.tokenizer,
        cache.digest(
            [FORMAT, "mixture", [[name, part.fingerprint] for name, part in parts.items()]]
        ),
        train=Mixed(
            {name: part.train for name, part in parts.items()}, corpus.weights, corpus.temperature
        ),
        folder=None if learned is None else learned.folder,
        source_tokenizer=first.source_tokenizer,
        others={
            split: joined({name: p.others.get(split) for name, p in parts.items()})
            for split in others
        },
        dropped={
            f"{name}/{what}": count
            for name, part in parts.items()
            for what, count in part.dropped.items()
        },
        unknown={
            f"{name}/{what}": count
            for name, part in parts.items()
            for what, count in part.unknown.items()
        },
        overlap={
            f"{name}/{split}": found
            for name, part in parts.items()
            for split, found in part.overlap.items()
        },
        **splits,
    )


def _learned(config: Mapping[str, Any], corpus: Any, nodes: Mapping[str, str]) -> Learned | None:
    """The tokenizer that is learned from all parts of a mixture, kept in the cache; None where
    there is nothing to learn.
    """
    node, one = _tokenizer_node(config, corpus)
    if not TOKENIZERS.create(node).learns_from:
        return None
    contents = [_content(config, nodes[name], part) for name, part in corpus.of.items()]
    known = [
        FORMAT,
        "learned",
        [content for _, _, content in contents],
        *_tokenizer_known(node, one),
    ]
    fingerprint = cache.digest(known)
    folder = contents[0][0] / fingerprint[:32]

    def make(fresh: Path) -> dict[str, Any]:
        fitted(fresh, corpus, _fresh(node, one))
        return {"format": FORMAT, "fingerprint": fingerprint, "tokenizer": node}

    cache.obtain(folder, make)
    return Learned(folder, fingerprint, one)


def _content(config: Mapping[str, Any], name: str, corpus: Corpus) -> tuple[Path, list[Any], str]:
    """(where prepared data lie, what differs whenever the corpus may, its fingerprint)."""
    base = cache.home(config["data"].get("cache"))
    stamp = [FORMAT, name, _code(CORPORA, name), corpus.stamp()]
    return base, stamp, cache.remembered(base, stamp, corpus.fingerprint)


def _tokenizer_node(config: Mapping[str, Any], corpus: Corpus) -> tuple[dict[str, Any], bool]:
    """The complete node of the tokenizer, and whether there is one for both sides of pairs."""
    node = TOKENIZERS.defaults(config["tokenizer"]["name"]) | dict(config["tokenizer"])
    return node, node.pop("shared", True) or corpus.form != "pairs"


def _tokenizer_known(node: dict[str, Any], one: bool) -> list[Any]:
    """What the ids of a text depend on beside the text."""
    content = TOKENIZERS.create(node).content()  # of a file that the options name
    return [
        node,
        _code(TOKENIZERS, node["name"]),
        *([] if one else ["each"]),
        *([] if content is None else [content]),
    ]


def _fresh(node: dict[str, Any], one: bool) -> list[Tokenizer]:
    """One tokenizer, or one for the targets and one for the sources."""
    return [TOKENIZERS.create(node) for _ in range(1 if one else 2)]


def _windows(
    config: Mapping[str, Any], folder: Path, meta: Mapping[str, Any]
) -> dict[str, Windows]:
    data = config["data"]

    def opened(split: str, said: Mapping[str, Any]) -> Windows:
        length = data["seq_len"] if split == "train" else data.get("valid_len") or data["seq_len"]
        return Windows(
            folder / f"{split}.bin", meta["dtype"], **said, seq_len=length, whole=split != "train"
        )

    return {split: opened(split, said) for split, said in meta["splits"].items()}


def _pairs(
    config: Mapping[str, Any], folder: Path, meta: Mapping[str, Any], tokenizer: Tokenizer
) -> dict[str, Pairs]:
    data = config["data"]
    together = "encoder" not in config.get(
        "model", {"encoder": {}}
    )  # a decoder alone reads both sides as one stream

    def opened(split: str, said: Mapping[str, Any]) -> Pairs:
        source, target = (Ragged(folder / f"{split}.{side}", **said[side]) for side in SIDES)
        return Pairs(
            source,
            target,
            split,
            data["seq_len"],
            data.get("too_long") or "error",
            tokenizer,
            together,
        )

    return {split: opened(split, said) for split, said in meta["splits"].items()}


def _make(folder: Path, corpus: Corpus, tokenizers: list[Tokenizer], apart: bool) -> dict[str, Any]:
    """Write the ids of every split; returns what there is to know of them.

    `tokenizers` is one, or one for the targets and one for the sources; with `apart`, documents of
    a text are kept apart.
    """
    overlap, order = Overlap(corpus), training_last(corpus.splits)
    with Meter("Tokenizing", corpus.size()) as meter:
        if isinstance(corpus, PairCorpus) and corpus.form == "pairs":
            source, target = tokenizers[-1], tokenizers[0]
            splits = {
                s: write_pairs(folder, s, source, target, meter(overlap.of(s, corpus.pairs(s))))
                for s in order
            }
        else:
            encode = write_documents if apart else _encode
            splits = {
                split: encode(
                    folder / f"{split}.bin",
                    tokenizers[0],
                    meter(overlap.of(split, corpus.texts(split))),
                )
                for split in order
            }
    tokenizer = tokenizers[0]
    return {
        "dtype": tokenizer.dtype.str,
        "vocab_size": tokenizer.vocab_size,
        "splits": {split: splits[split] for split in corpus.splits},
        "overlap": overlap.counts(),
        "unknown": _unknown(folder, tokenizers),
    }


def _unknown(folder: Path, tokenizers: list[Tokenizer]) -> dict[str, int]:
    """How many tokens of each file of ids stand for what its tokenizer does not know; files with
    none are left out.
    """
    counts: dict[str, int] = {}
    for file in sorted(folder.glob("*.bin")):
        tokenizer = tokenizers[-1] if file.stem.endswith(".source") else tokenizers[0]
        if tokenizer.unknown_id is not None and file.stat().st_size:
            ids = np.memmap(file, dtype=tokenizer.dtype, mode="r")
            count = sum(
                tokenizer.count_unknown(ids[i : i + 2**20]) for i in range(0, len(ids), 2**20)
            )
            counts |= {file.stem.replace(".", "/"): count} if count else {}
    return counts


def _encode(path: Path, tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, int]:
    """Write the ids of a text one after the other; counts the tokens, and the bytes of all but the
    first.
    """
    tokens = size = 0
    with cache.writing(path.parent.parent):
        file = open(path, "wb", buffering=0)  # noqa: SIM115, closed below
    with file:
        for ids in tokenizer.encode_all(texts):
            size += tokenizer.count_bytes(ids if tokens else ids[1:], goes_on=True)
            tokens += len(ids)
            cache.append(ids.astype(tokenizer.dtype, copy=False), file, path.parent.parent)
    return {"tokens": tokens, "bytes": size}


def _code(registry: Registry, name: str) -> str | None:
    """sha256 of the file of a user's own part: changed code is other data. None for the parts of
    this package.
    """
    module = registry[name].__module__
    if module.split(".")[0] == "xformer_kit":
        return None
    try:
        return hashlib.sha256(inspect.getsource(sys.modules[module]).encode()).hexdigest()
    except (OSError, TypeError, KeyError):
        return module
