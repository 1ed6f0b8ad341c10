"""Prepares a corpus: fits a tokenizer, encodes the text in pieces, and caches the tokens under the
fingerprint of text, tokenizer and format.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from xformer_kit.data import cache
from xformer_kit.data.corpus import CORPORA, Corpus
from xformer_kit.data.corpus.mixture import Mixture
from xformer_kit.data.corpus.text import Text
from xformer_kit.data.mixing import MixedExamples, concat_splits
from xformer_kit.data.plain import Plain
from xformer_kit.data.preparation.documents import write_tokens
from xformer_kit.data.preparation.fitted_tokenizers import FittedTokenizers
from xformer_kit.data.preparation.labelled import prepare_labelled
from xformer_kit.data.preparation.overlap import Overlap, training_last
from xformer_kit.data.preparation.pairs import SIDES, Pairs, Ragged, write_pairs
from xformer_kit.data.preparation.progress import reading_progress
from xformer_kit.data.preparation.user_code import check_corpus
from xformer_kit.data.preparation.windows import Windows
from xformer_kit.data.tokenizer import TOKENIZERS, Tokenizer
from xformer_kit.files.user_errors import user_errors
from xformer_kit.registry import ConfigError

# version of the files in the cache and of the text of the corpora; a change makes new fingerprints
FORMAT = 2


@dataclass(frozen=True)
class Prepared:
    """A corpus with its tokenizers and the examples of its splits."""

    tokenizer: Tokenizer  # of a text, or of the targets of pairs
    # of the sources of pairs; the same object as `tokenizer` if it is shared
    source_tokenizer: Tokenizer
    fingerprint: str  # sha256 of text, split, tokenizer and format, not of paths
    train: Any  # Windows, Pairs, ProbeExamples or MixedExamples
    valid: Any
    folder: Path | None  # in the cache
    test: Any = None  # None if the corpus has no such split
    other_splits: Plain = field(default_factory=dict)  # such as COGS' gen
    # "train/too_long", "valid/empty", ... -> number of pairs
    dropped: Mapping[str, int] = field(default_factory=dict)
    # "valid", "train/source", ... -> number of tokens for unknown text
    unknown: Mapping[str, int] = field(default_factory=dict)
    # "valid", ... -> number of characters of the text for which there is no token
    characters_dropped: Mapping[str, int] = field(default_factory=dict)
    # "valid", ... -> [examples that are in training too, all examples, "pairs", "documents", ...]
    overlap: Plain = field(default_factory=dict)


class SharedTokenizers(NamedTuple):
    """The tokenizers of a mixture, fitted on all of its parts."""

    folder: Path
    fingerprint: str


def prepare(config: Plain) -> Prepared:
    """Returns the prepared corpus of a config, from the cache or else prepared in bounded memory.

    Reads config["data"] (the corpus with its options; seq_len, valid_len, too_long, cache),
    config["tokenizer"] and, if there is a config["model"], whether it has an encoder. Several
    processes may call it at the same time. Raises ConfigError for text that cannot be read or
    encoded or is shorter than a window, and for pairs that are too long.
    """
    data = config["data"]
    own = {"data": CORPORA[data["name"]]}
    if "tokenizer" in config:
        own["tokenizer"] = TOKENIZERS[config["tokenizer"]["name"]]
    with user_errors([*own.items()]):
        return _prepare(config)


def _prepare(config: Plain) -> Prepared:
    data = config["data"]
    options = CORPORA.options(data["name"])
    corpus = CORPORA.create(
        {"name": data["name"]} | {key: data[key] for key in data if key in options}
    )
    if not isinstance(corpus, Mixture):
        check_corpus(corpus)
    if corpus.form == "labelled":
        content = cache.digest([FORMAT, corpus.fingerprint(), cache.code_hash(type(corpus))])
        return Prepared(fingerprint=content, **prepare_labelled(corpus, data["seq_len"]))
    if isinstance(corpus, Mixture):
        return _prepare_mixture(config, corpus)
    return _prepare_corpus(config, corpus)


def _prepare_corpus(
    config: Plain, corpus: Corpus, shared: SharedTokenizers | None = None
) -> Prepared:
    """Returns a prepared corpus that is not a mixture, with its own tokenizers or with those of a
    mixture.
    """
    tokenizers = FittedTokenizers.of(config, corpus)
    base, stamp, content = _corpus_content(config, corpus)
    by_document = bool(config["data"].get("documents"))
    content = cache.digest([content, "documents"]) if by_document else content
    contents = [FORMAT, content, *tokenizers.fingerprint_values()]
    fingerprint = cache.digest(contents if shared is None else [*contents, shared.fingerprint])

    def make(folder: Path) -> Plain:
        if shared is None:
            fitted = tokenizers.fit(folder, corpus)
        else:
            fitted = tokenizers.save(folder, tokenizers.load(shared.folder))
        meta = _write_splits(folder, corpus, fitted, by_document)
        if corpus.stamp() != stamp[-1]:
            raise corpus.config_error("", "was changed while it was read", fix="Start again.")
        origin = {"format": FORMAT, "fingerprint": fingerprint, "corpus": stamp[1]}
        return {**meta, **origin, "tokenizer": tokenizers.node}

    folder = base / fingerprint[: cache.DIGITS]
    meta = cache.get_or_make(folder, make)
    loaded = tokenizers.load(folder)
    splits = _splits(config, corpus, folder, meta)
    copies = isinstance(corpus, Text) and cache.cached_result(
        base, ["copies", stamp], corpus.copies
    )
    return Prepared(
        loaded[0],
        loaded[-1],
        fingerprint,
        folder=folder,
        dropped={
            f"{split}/{reason}": count
            for split, data in splits.items()
            for reason, count in data.dropped.items()
        },
        unknown=meta["unknown"],
        characters_dropped=meta["characters_dropped"],
        overlap=copies or meta["overlap"],
        other_splits={name: splits.pop(name) for name in set(splits) - {"train", "valid", "test"}},
        **splits,
    )


def _splits(config: Plain, corpus: Corpus, folder: Path, meta: Plain) -> dict[str, Any]:
    """Returns the examples of each split. Raises ConfigError for a split that is empty or too
    short.
    """
    data, splits = config["data"], dict[str, Any]()
    for split, counts in meta["splits"].items():
        if corpus.form == "pairs":
            splits[split] = Pairs(
                [Ragged(folder / f"{split}.{side}", **counts[side]) for side in SIDES],
                split,
                data["seq_len"],
                data.get("too_long") or "error",
                # without an encoder the decoder reads source and target as one sequence
                "encoder" not in config.get("model", {"encoder": {}}),
                counts["empty"],
                corpus.config_path,
            )
        else:
            training = split == "train"
            splits[split] = Windows(
                folder / f"{split}.bin",
                meta["dtype"],
                **counts,
                seq_len=(not training and data.get("valid_len")) or data["seq_len"],
                pad=not training,
                config_path=corpus.config_path,
            )
    return splits


def _prepare_mixture(config: Plain, corpus: Mixture) -> Prepared:
    """Returns a prepared mixture. Each part is prepared separately, with the same tokenizers;
    those that are fitted are fitted on all parts.
    """
    shared = _fit_shared(config, corpus)
    parts: dict[str, Prepared] = {}
    for name, part in corpus.of.items():
        try:
            parts[name] = _prepare_corpus(config, part, shared)
        except ConfigError as error:
            note = f"[{part.config_path}]"
            raise ConfigError(fault.with_fix(note) for fault in error.faults) from None
    first = next(iter(parts.values()))
    fingerprints = [[name, part.fingerprint] for name, part in parts.items()]

    def by_part(field: str) -> dict[str, Any]:
        """Returns part -> the value of a field of Prepared."""
        return {name: getattr(part, field) for name, part in parts.items()}

    fields = ("dropped", "unknown", "characters_dropped", "overlap")
    counts = {
        field: {
            f"{name}/{key}": value
            for name, part in parts.items()
            for key, value in getattr(part, field).items()
        }
        for field in fields
    }
    other_splits = by_part("other_splits")
    return Prepared(
        first.tokenizer,
        first.source_tokenizer,
        cache.digest([FORMAT, "mixture", fingerprints]),
        train=MixedExamples(by_part("train"), corpus.weights, corpus.temperature),
        valid=concat_splits(by_part("valid")),
        test=concat_splits(by_part("test")),
        folder=None if shared is None else shared.folder,
        other_splits={
            split: concat_splits({name: splits.get(split) for name, splits in other_splits.items()})
            for split in dict.fromkeys(chain.from_iterable(other_splits.values()))
        },
        **counts,
    )


def _fit_shared(config: Plain, corpus: Mixture) -> SharedTokenizers | None:
    """Fits the tokenizers of a mixture on all of its parts, in the cache; None if the tokenizer is
    not fitted.
    """
    tokenizers = FittedTokenizers.of(config, corpus)
    if not tokenizers.fit_splits:
        return None
    contents = [_corpus_content(config, part) for part in corpus.of.values()]
    fingerprints = [content for _, _, content in contents]
    fingerprint = cache.digest([FORMAT, "learned", fingerprints, *tokenizers.fingerprint_values()])
    folder = contents[0][0] / fingerprint[: cache.DIGITS]

    def make(fresh: Path) -> Plain:
        tokenizers.fit(fresh, corpus)
        return {"format": FORMAT, "fingerprint": fingerprint, "tokenizer": tokenizers.node}

    cache.get_or_make(folder, make)
    return SharedTokenizers(folder, fingerprint)


def _corpus_content(config: Plain, corpus: Corpus) -> tuple[Path, list[Any], str]:
    """Returns (directory of prepared data, stamp of the corpus and its code, its fingerprint)."""
    base, kind = cache.directory(config["data"].get("cache")), type(corpus)
    stamp = [FORMAT, CORPORA.name_of(kind), cache.code_hash(kind), corpus.stamp()]
    return base, stamp, cache.cached_result(base, stamp, corpus.fingerprint)


def _write_splits(
    folder: Path, corpus: Corpus, tokenizers: list[Tokenizer], by_document: bool
) -> Plain:
    """Writes the ids of every split; returns the meta data.

    tokenizers: one, or one for the targets and one for the sources. by_document: whether each
    document of a text is encoded separately.
    """
    overlap, tokenizer = Overlap(corpus), tokenizers[0]
    splits: dict[str, Any] = {}
    unknown: dict[str, int] = {}
    with reading_progress("Tokenizing", corpus.size()) as progress:
        for split in training_last(corpus.splits):
            items = progress(overlap.observe(split, corpus.items(split)))
            if corpus.form == "pairs":
                counts = write_pairs(folder, split, tokenizers[-1], tokenizer, items)
                sides = counts.pop("unknown").items()
                unknown |= {f"{split}/{side}": count for side, count in sides}
            else:
                counts = write_tokens(folder / f"{split}.bin", tokenizer, items, by_document)
                unknown[split] = counts.pop("unknown")
            splits[split] = counts
    return {
        "dtype": tokenizer.dtype.str,
        "vocab_size": tokenizer.vocab_size,
        "characters_dropped": {
            split: count for split in corpus.splits if (count := splits[split].pop("dropped"))
        },
        "splits": {split: splits[split] for split in corpus.splits},
        "overlap": overlap.counts(),
        "unknown": {name: count for name, count in sorted(unknown.items()) if count},
    }
