"""ELECTRA (Clark et al., 2020, arXiv:2003.10555): its generator, BERT with narrower embeddings."""

from xformer_kit.hub.common import length
from xformer_kit.hub.families.bert import BERT_KEYS, UNUSED, blocks, embeddings, head
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Key
from xformer_kit.hub.weights import linear

FAMILY = Family(
    preset="electra",
    architectures=("ElectraForMaskedLM",),
    keys=(*BERT_KEYS, length(512), Key("embedding_size", "model.embed_dim", 128)),
    weights=(
        *embeddings("electra.embeddings"),
        *linear("electra.embeddings_project", "encoder.project"),
        *blocks("electra.encoder.layer.{i}"),
        *head(
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            "generator_lm_head.bias",
        ),
    ),
    prefix="electra.",
    unused=UNUSED,
    tied=(("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),),
)
