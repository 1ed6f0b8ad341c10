"""XLM-R (Conneau et al., 2020, arXiv:1911.02116): RoBERTa of many languages."""

from dataclasses import replace

from xformer_kit.hub.families import roberta

FAMILY = replace(roberta.FAMILY, architectures=("XLMRobertaForMaskedLM",))
