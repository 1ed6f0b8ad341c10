"""Prepares corpora of labelled examples, which write no files. Their words are the vocabulary."""

from typing import Any

from xformer_kit.data.corpus.probes import Probe
from xformer_kit.data.tokenizer.simple import Word
from xformer_kit.registry import ConfigError, Fault


def prepare_labelled(corpus: Probe, seq_len: int) -> dict[str, Any]:
    """Returns the tokenizer and the splits of a labelled corpus, as fields of Prepared.

    Raises ConfigError if its longest example has more than seq_len + 1 tokens.
    """
    if fault := too_short_fault(corpus, seq_len):
        raise ConfigError(fault)
    tokenizer = Word.of(corpus.words())
    splits = {split: corpus.dataset(split) for split in corpus.splits}
    return {"tokenizer": tokenizer, "source_tokenizer": tokenizer, "folder": None, **splits}


def too_short_fault(corpus: Probe, seq_len: int) -> Fault | None:
    """Returns the fault of a seq_len that is too small for the longest example, whose last token is
    only predicted; else None.
    """
    needed = corpus.max_seq_len - 1
    if seq_len >= needed:
        return None
    return Fault(
        "data.seq_len",
        f"must hold the longest example, {corpus.max_seq_len:,} tokens with the last one only"
        " predicted",
        got=seq_len,
        fix=f"Try {needed} or more, or shorter examples.",
    )
