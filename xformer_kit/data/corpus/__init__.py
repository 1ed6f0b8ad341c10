"""What is there to learn from? A corpus gives its splits: text, pairs of texts, or labelled
examples. One file per family.
"""

from xformer_kit.data.corpus import (
    cldr,
    cogs,
    hub,
    mixture,
    parallel,
    probes,
    python,
    records,
    scan,
    text,
)
from xformer_kit.data.corpus.base import CORPORA, Corpus, PairCorpus

__all__ = ["CORPORA", "Corpus", "PairCorpus"]
