"""How is a corpus read that labels its examples itself? Nothing is written: its words are its
vocabulary.
"""

from typing import Any

from xformer_kit.data.corpus.probes import Probe
from xformer_kit.data.tokenizer.simple import Word
from xformer_kit.registry import ConfigError


def labelled(corpus: Probe, seq_len: int) -> dict[str, Any]:
    """The tokenizer and the splits of a labelled corpus: fields of Prepared.

    Raises ConfigError where its longest example does not fit into a window of seq_len tokens and
    the one after.
    """
    if fault := too_short(corpus, seq_len):
        raise ConfigError(fault)
    tokenizer = Word.of(corpus.words())
    splits = {split: corpus.dataset(split) for split in corpus.splits}
    return {"tokenizer": tokenizer, "source_tokenizer": tokenizer, "folder": None, **splits}


def too_short(corpus: Probe, seq_len: int) -> str | None:
    """The sentence for windows that do not hold an example: its last token is only predicted, so
    one less is read.
    """
    needed = corpus.longest - 1
    if seq_len >= needed:
        return None
    return (
        f"data.seq_len: must hold the longest example, {corpus.longest:,} tokens with the last one"
        f" only predicted; got {seq_len}. Try {needed} or more, or shorter examples."
    )
