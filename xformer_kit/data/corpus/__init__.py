"""Corpora: splits of text, of pairs of texts, or of labelled examples. One file per family."""

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
from xformer_kit.data.corpus.base import CORPORA, Corpus, PairCorpus, hash_fraction
from xformer_kit.data.corpus.probes.base import Probe

__all__ = ["CORPORA", "Corpus", "PairCorpus", "Probe", "hash_fraction"]
