"""Corpora that label their examples: nothing is written, and their words are the vocabulary."""

from typing import Any

from xformer_kit.data.corpus.probes import Probe
from xformer_kit.data.tokenizer.simple import Word
from xformer_kit.registry import ConfigError, Fault


def labelled(corpus: Probe, seq_len: int) -> dict[str, Any]:
    """The tokenizer and the splits of a labelled corpus: fields of Prepared.

    Raises ConfigError if its longest example does not fit into a window of seq_len tokens and the
    one after.
    """
    if fault := too_short(corpus, seq_len):
        raise ConfigError(fault)
    tokenizer = Word.of(corpus.words())
    splits = {split: corpus.dataset(split) for split in corpus.splits}
    return {"tokenizer": tokenizer, "source_tokenizer": tokenizer, "folder": None, **splits}


def too_short(corpus: Probe, seq_len: int) -> Fault | None:
    """The fault of windows that do not hold an example, whose last token is not read; else None."""
    needed = corpus.longest - 1
    if seq_len >= needed:
        return None
    return Fault(
        "data.seq_len",
        f"must hold the longest example, {corpus.longest:,} tokens with the last one only"
        " predicted",
        got=seq_len,
        fix=f"Try {needed} or more, or shorter examples.",
    )
