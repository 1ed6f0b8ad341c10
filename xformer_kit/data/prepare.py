"""Preparation of a corpus: fits a tokenizer, encodes the text piece by piece, and caches the tokens
under the fingerprint of text, tokenizer and format.
"""

import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.corpus import CORPORA, Corpus
from xformer_kit.data.corpus.divided import Divided
from xformer_kit.data.corpus.mixture import located
from xformer_kit.data.corpus.text import Text
from xformer_kit.data.documents import write_documents, write_text
from xformer_kit.data.fitted_tokenizers import Learned, fitted, kept
from xformer_kit.data.labelled import labelled
from xformer_kit.data.mixing import Mixed, joined
from xformer_kit.data.overlap import Overlap, counted, training_last
from xformer_kit.data.pairs import SIDES, Pairs, Ragged, write_pairs
from xformer_kit.data.progress import ReadingProgress
from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer
from xformer_kit.data.windows import Windows
from xformer_kit.registry import ConfigError, Fault, Registry

# of the files in the cache and of the text of our corpora; a change makes new fingerprints
FORMAT = 1


@dataclass(frozen=True)
class Prepared:
    """A corpus as a run reads it."""

    tokenizer: Tokenizer  # of a text, or of the targets of pairs
    fingerprint: str  # sha256 of text, split, tokenizer and format; the same wherever the files lie
    train: Any  # Windows, Pairs, ProbeExamples
    valid: Any
    folder: Path | None  # in the cache
    test: Any = None  # if the corpus has such a split
    others: Mapping[str, Any] = field(default_factory=dict)  # further splits, such as COGS' gen
    # of the sources of pairs: the same object if it is shared
    source_tokenizer: Tokenizer | None = None
    # "train/too_long", "valid/empty", ... -> pairs
    dropped: Mapping[str, int] = field(default_factory=dict)
    # "valid", "train/source", ... -> tokens that stand for unknown text
    unknown: Mapping[str, int] = field(default_factory=dict)
    # "valid", ... -> [examples that are in training too, all examples, "pairs" or ...]
    overlap: Mapping[str, Any] = field(default_factory=dict)


def prepare(config: Mapping[str, Any]) -> Prepared:
    """The tokens of a config's corpus: from the cache, else prepared now, in bounded memory.

    Reads config["data"] (the corpus with its options; seq_len, valid_len, too_long, cache),
    config["tokenizer"], and of config["model"], if it is given, whether there is an encoder.
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
    """A corpus that is no mixture, with a tokenizer of its own, or one learned from several
    corpora.
    """
    node, one = _tokenizer_node(config, corpus)
    base, stamp, content = _content(config, name, corpus)
    apart = bool(config["data"].get("documents"))
    text, content = content, cache.digest([content, "documents"]) if apart else content
    shared = [] if learned is None else [learned.fingerprint]
    fingerprint = cache.digest([FORMAT, content, *_tokenizer_known(node, one), *shared])

    def make(folder: Path) -> dict[str, Any]:
        made = (
            fitted(folder, corpus, _fresh(node, one)) if learned is None else learned.saved(folder)
        )
        meta = _make(folder, corpus, made, apart)
        if corpus.stamp() != stamp[-1]:
            raise ConfigError(
                Fault(
                    "data",
                    "the text must stay as it is while it is read; it was changed",
                    fix="Start again.",
                )
            )
        known = {"format": FORMAT, "fingerprint": fingerprint, "corpus": name, "tokenizer": node}
        return meta | known

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
        for split, written in meta["splits"].items()
        for reason, count in (
            {"empty": written.get("empty", 0)} | getattr(splits[split], "dropped", {})
        ).items()
        if count
    }
    others = {split: splits.pop(split) for split in set(splits) - {"train", "valid", "test"}}
    return Prepared(
        target,
        fingerprint,
        folder=folder,
        source_tokenizer=source,
        dropped=dropped,
        unknown=meta.get("unknown", {}),
        overlap=_overlap(base, stamp, text, corpus, meta),
        others=others,
        **splits,
    )


def _not_empty(corpus: Corpus, splits: Mapping[str, Any]) -> None:
    """Raises ConfigError for an empty split if the corpus has the reason."""
    for split, written in splits.items():
        empty = not (written["source"]["count"] if "source" in written else written["tokens"])
        if empty and isinstance(corpus, Divided) and (fault := corpus.why_empty(split)):
            raise ConfigError(fault)


def _overlap(
    base: Path, stamp: list[Any], text: str, corpus: Corpus, meta: Mapping[str, Any]
) -> dict[str, Any]:
    """Examples of each split that occur in training too, also for an older cache without their
    counts.
    """
    if isinstance(corpus, Text):
        found = cache.remembered(base, ["copies", stamp], lambda: json.dumps(corpus.copies()))
    elif "overlap" in meta:
        return dict(meta["overlap"])
    else:
        found = cache.remembered(base, ["overlap", text], lambda: json.dumps(counted(corpus)))
    return dict(json.loads(found))


def _mixed(config: Mapping[str, Any], corpus: Any) -> Prepared:
    """The parts of a mixture, each prepared by itself, with one tokenizer that is learned from all
    of them.
    """
    nodes = {name: CORPORA.named(node)["name"] for name, node in config["data"]["of"].items()}
    learned = _learned(config, corpus, nodes)
    parts: dict[str, Prepared] = {}
    for name, part in corpus.of.items():
        try:
            parts[name] = _one(config, nodes[name], part, learned)
        except ConfigError as error:
            raise ConfigError(located(fault, name, nodes[name]) for fault in error.faults) from None
    first = next(iter(parts.values()))
    fingerprints = [[name, part.fingerprint] for name, part in parts.items()]

    def each(field: str) -> dict[str, Any]:
        return {name: getattr(part, field) for name, part in parts.items()}

    def by_part(field: str) -> dict[str, Any]:
        """What each part counts, under its name."""
        counts = each(field).items()
        return {f"{name}/{key}": value for name, part in counts for key, value in part.items()}

    further = each("others")
    return Prepared(
        first.tokenizer,
        cache.digest([FORMAT, "mixture", fingerprints]),
        train=Mixed(each("train"), corpus.weights, corpus.temperature),
        valid=joined(each("valid")),
        test=joined(each("test")),
        folder=None if learned is None else learned.folder,
        source_tokenizer=first.source_tokenizer,
        others={
            split: joined({name: others.get(split) for name, others in further.items()})
            for split in dict.fromkeys(split for others in further.values() for split in others)
        },
        dropped=by_part("dropped"),
        unknown=by_part("unknown"),
        overlap=by_part("overlap"),
    )


def _learned(config: Mapping[str, Any], corpus: Any, nodes: Mapping[str, str]) -> Learned | None:
    """The tokenizer that is learned from all parts of a mixture, kept in the cache; None if there
    is nothing to learn.
    """
    node, one = _tokenizer_node(config, corpus)
    if not TOKENIZERS.create(node).learns_from:
        return None
    contents = [_content(config, nodes[name], part) for name, part in corpus.of.items()]
    texts = [content for _, _, content in contents]
    fingerprint = cache.digest([FORMAT, "learned", texts, *_tokenizer_known(node, one)])
    folder = contents[0][0] / fingerprint[:32]

    def make(fresh: Path) -> dict[str, Any]:
        fitted(fresh, corpus, _fresh(node, one))
        return {"format": FORMAT, "fingerprint": fingerprint, "tokenizer": node}

    cache.obtain(folder, make)
    return Learned(folder, fingerprint, one)


def _content(config: Mapping[str, Any], name: str, corpus: Corpus) -> tuple[Path, list[Any], str]:
    """(directory of prepared data, stamp of the corpus and its code, fingerprint of the corpus)."""
    base = cache.home(config["data"].get("cache"))
    stamp = [FORMAT, name, _code(CORPORA, name), corpus.stamp()]
    return base, stamp, cache.remembered(base, stamp, corpus.fingerprint)


def _tokenizer_node(config: Mapping[str, Any], corpus: Corpus) -> tuple[dict[str, Any], bool]:
    """The complete node of the tokenizer, and whether there is one for both sides of pairs."""
    node = TOKENIZERS.defaults(config["tokenizer"]["name"]) | dict(config["tokenizer"])
    return node, node.pop("shared", True) or corpus.form != "pairs"


def _tokenizer_known(node: dict[str, Any], one: bool) -> list[Any]:
    """Values that the ids of a text depend on, besides the text."""
    content = TOKENIZERS.create(node).content()  # of a file that the options name
    known = [node, _code(TOKENIZERS, node["name"]), None if one else "each", content]
    return known[:2] + [value for value in known[2:] if value is not None]


def _fresh(node: dict[str, Any], one: bool) -> list[Tokenizer]:
    """One tokenizer, or one for the targets and one for the sources."""
    return [TOKENIZERS.create(node) for _ in range(1 if one else 2)]


def _windows(
    config: Mapping[str, Any], folder: Path, meta: Mapping[str, Any]
) -> dict[str, Windows]:
    length = config["data"]["seq_len"]
    valid_len = config["data"].get("valid_len") or length
    return {
        split: Windows(
            folder / f"{split}.bin",
            meta["dtype"],
            **written,
            seq_len=length if split == "train" else valid_len,
            whole=split != "train",
        )
        for split, written in meta["splits"].items()
    }


def _pairs(
    config: Mapping[str, Any], folder: Path, meta: Mapping[str, Any], tokenizer: Tokenizer
) -> dict[str, Pairs]:
    data = config["data"]
    # without an encoder the decoder reads both sides as one stream
    together = "encoder" not in config.get("model", {"encoder": {}})
    return {
        split: Pairs(
            [Ragged(folder / f"{split}.{side}", **written[side]) for side in SIDES],
            split,
            data["seq_len"],
            data.get("too_long") or "error",
            tokenizer,
            together,
        )
        for split, written in meta["splits"].items()
    }


def _make(folder: Path, corpus: Corpus, tokenizers: list[Tokenizer], apart: bool) -> dict[str, Any]:
    """Write the ids of every split; returns their meta data.

    `tokenizers` is one, or one for the targets and one for the sources; with `apart`, each document
    of a text is encoded by itself.
    """
    overlap, tokenizer = Overlap(corpus), tokenizers[0]
    write = write_documents if apart else write_text
    splits: dict[str, Any] = {}
    with ReadingProgress("Tokenizing", corpus.size()) as progress:
        for split in training_last(corpus.splits):
            items = progress(overlap.of(split, corpus.items(split)))
            if corpus.form == "pairs":
                splits[split] = write_pairs(folder, split, tokenizers[-1], tokenizer, items)
            else:
                splits[split] = write(folder / f"{split}.bin", tokenizer, items)
    return {
        "dtype": tokenizer.dtype.str,
        "vocab_size": tokenizer.vocab_size,
        "splits": {split: splits[split] for split in corpus.splits},
        "overlap": overlap.counts(),
        "unknown": _unknown(folder, tokenizers),
    }


def _unknown(folder: Path, tokenizers: list[Tokenizer]) -> dict[str, int]:
    """Number of tokens for unknown text in each file of ids that has any."""
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


def _code(registry: Registry, name: str) -> str | None:
    """sha256 of the file of a user's own component: changed code is other data. None for the
    components of this package.
    """
    module = registry[name].__module__
    if module.split(".")[0] == "xformer_kit":
        return None
    try:
        return hashlib.sha256(inspect.getsource(sys.modules[module]).encode()).hexdigest()
    except (OSError, TypeError, KeyError):
        return module
