"""Preparation of a corpus: fits a tokenizer, encodes the text piece by piece, and caches the tokens
under the fingerprint of text, tokenizer and format.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xformer_kit.data import cache
from xformer_kit.data.corpus import CORPORA, Corpus
from xformer_kit.data.corpus.mixture import Mixture
from xformer_kit.data.corpus.text import Text
from xformer_kit.data.documents import write_documents, write_text
from xformer_kit.data.fitted_tokenizers import Tokenizers
from xformer_kit.data.labelled import labelled
from xformer_kit.data.mixing import Mixed, joined
from xformer_kit.data.overlap import Overlap, training_last
from xformer_kit.data.pairs import SIDES, Pairs, Ragged, write_pairs
from xformer_kit.data.plain import Plain
from xformer_kit.data.progress import ReadingProgress
from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer
from xformer_kit.data.windows import Windows
from xformer_kit.registry import ConfigError, Fault

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
    others: Plain = field(default_factory=dict)  # further splits, such as COGS' gen
    # of the sources of pairs: the same object if it is shared
    source_tokenizer: Tokenizer | None = None
    # "train/too_long", "valid/empty", ... -> pairs
    dropped: Mapping[str, int] = field(default_factory=dict)
    # "valid", "train/source", ... -> tokens that stand for unknown text
    unknown: Mapping[str, int] = field(default_factory=dict)
    # "valid", ... -> [examples that are in training too, all examples, "pairs" or ...]
    overlap: Plain = field(default_factory=dict)


class Learned(NamedTuple):
    """Tokenizers that were fitted on several corpora together."""

    folder: Path
    fingerprint: str


def prepare(config: Plain) -> Prepared:
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
        content = cache.digest([FORMAT, corpus.fingerprint(), cache.code_of(type(corpus))])
        return Prepared(fingerprint=content, **labelled(corpus, data["seq_len"]))
    return _mixed(config, corpus) if isinstance(corpus, Mixture) else _one(config, corpus)


def _one(config: Plain, corpus: Corpus, learned: Learned | None = None) -> Prepared:
    """A corpus that is no mixture, with a tokenizer of its own, or one learned from several
    corpora.
    """
    tokenizers = Tokenizers.of(config, corpus)
    base, stamp, content = _content(config, corpus)
    apart = bool(config["data"].get("documents"))
    content = cache.digest([content, "documents"]) if apart else content
    shared = [] if learned is None else [learned.fingerprint]
    fingerprint = cache.digest([FORMAT, content, *tokenizers.known(), *shared])

    def make(folder: Path) -> dict[str, Any]:
        if learned is None:
            made = tokenizers.fit(folder, corpus)
        else:
            made = tokenizers.save(folder, tokenizers.load(learned.folder))
        meta = _make(folder, corpus, made, apart)
        if corpus.stamp() != stamp[-1]:
            raise corpus.refused(
                "",
                "the text must stay as it is while it is read; it was changed",
                fix="Start again.",
            )
        known = {"corpus": stamp[1], "tokenizer": tokenizers.node}
        return meta | {"format": FORMAT, "fingerprint": fingerprint} | known

    folder = base / fingerprint[:32]
    meta = cache.obtain(folder, make)
    found = tokenizers.load(folder)
    splits = _splits(config, corpus, folder, meta, found[0])
    copies = isinstance(corpus, Text) and cache.remembered(base, ["copies", stamp], corpus.copies)
    return Prepared(
        found[0],
        fingerprint,
        folder=folder,
        source_tokenizer=found[-1],
        dropped={
            f"{split}/{reason}": count
            for split, data in splits.items()
            for reason, count in data.dropped.items()
        },
        unknown=meta["unknown"],
        overlap=copies or meta["overlap"],
        others={name: splits.pop(name) for name in set(splits) - {"train", "valid", "test"}},
        **splits,
    )


def _splits(
    config: Plain,
    corpus: Corpus,
    folder: Path,
    meta: Plain,
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    """The examples of every split. Raises ConfigError for one that is empty or too short."""
    data, place, found = config["data"], corpus.place, dict[str, Any]()
    valid_len = data.get("valid_len") or data["seq_len"]
    # without an encoder the decoder reads both sides as one stream
    together = "encoder" not in config.get("model", {"encoder": {}})
    too_long = data.get("too_long") or "error"
    for split, written in meta["splits"].items():
        file = folder / f"{split}.bin"
        length, whole = (data["seq_len"], False) if split == "train" else (valid_len, True)
        if not written.get("source", written)["tokens"] and (fault := corpus.why_empty(split)):
            raise ConfigError(fault)
        if corpus.form != "pairs":
            found[split] = Windows(
                file, meta["dtype"], **written, seq_len=length, whole=whole, place=place
            )
            continue
        sides = [Ragged(folder / f"{split}.{side}", **written[side]) for side in SIDES]
        found[split] = Pairs(
            sides, split, data["seq_len"], too_long, tokenizer, together, written["empty"], place
        )
    return found


def _mixed(config: Plain, corpus: Mixture) -> Prepared:
    """The parts of a mixture, each prepared by itself, with one tokenizer that is learned from all
    of them.
    """
    learned = _learned(config, corpus)
    parts: dict[str, Prepared] = {}
    for name, part in corpus.of.items():
        try:
            parts[name] = _one(config, part, learned)
        except ConfigError as error:
            raise ConfigError(_of_part(part.place, fault) for fault in error.faults) from None
    first = next(iter(parts.values()))
    fingerprints = [[name, part.fingerprint] for name, part in parts.items()]

    def each(field: str) -> dict[str, Any]:
        return {name: getattr(part, field) for name, part in parts.items()}

    def by_component(field: str) -> dict[str, Any]:
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
        dropped=by_component("dropped"),
        unknown=by_component("unknown"),
        overlap=by_component("overlap"),
    )


def _of_part(place: str, fault: Fault) -> Fault:
    """A fault of another place, such as the tokenizer, with a note of the part that it is about."""
    of_component = fault.path == place or fault.path.startswith(f"{place}.")
    return fault if of_component else fault.with_fix(f"[{place}]")


def _learned(config: Plain, corpus: Mixture) -> Learned | None:
    """The tokenizer that is learned from all parts of a mixture, kept in the cache; None if there
    is nothing to learn.
    """
    tokenizers = Tokenizers.of(config, corpus)
    if not TOKENIZERS.create(tokenizers.node).learns_from:
        return None
    contents = [_content(config, part) for part in corpus.of.values()]
    texts = [content for _, _, content in contents]
    fingerprint = cache.digest([FORMAT, "learned", texts, *tokenizers.known()])
    folder = contents[0][0] / fingerprint[:32]

    def make(fresh: Path) -> dict[str, Any]:
        tokenizers.fit(fresh, corpus)
        return {"format": FORMAT, "fingerprint": fingerprint, "tokenizer": tokenizers.node}

    cache.obtain(folder, make)
    return Learned(folder, fingerprint)


def _content(config: Plain, corpus: Corpus) -> tuple[Path, list[Any], str]:
    """(directory of prepared data, stamp of the corpus and its code, fingerprint of the corpus)."""
    base, part = cache.home(config["data"].get("cache")), type(corpus)
    stamp = [FORMAT, CORPORA.name_of(part), cache.code_of(part), corpus.stamp()]
    return base, stamp, cache.remembered(base, stamp, corpus.fingerprint)


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
