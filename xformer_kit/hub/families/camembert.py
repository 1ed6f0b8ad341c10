"""CamemBERT (Martin et al., 2020, arXiv:1911.03894): RoBERTa of French."""

from dataclasses import replace

from xformer_kit.hub.families import roberta

FAMILY = replace(roberta.FAMILY, architectures=("CamembertForMaskedLM",))
