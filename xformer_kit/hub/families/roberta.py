"""RoBERTa (Liu et al., 2019, arXiv:1907.11692): BERT, whose positions begin after the number of the
padding token.
"""

from xformer_kit.hub.families.bert import BERT_KEYS, UNUSED, blocks, embeddings, head
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Values, found, refuse


def read_length(config: Values) -> dict:
    """The first row of the table of positions that is used, and the number of those rows."""
    rows = found(config, ("max_position_embeddings",), 512)
    padding = found(config, ("pad_token_id",), 1)
    if padding is None:
        raise refuse("pad_token_id", None, "must be a number, as positions begin after it")
    offset = padding + 1
    return {"position.offset": offset, "model.max_len": rows - offset}


def write_length(values: Values) -> dict:
    """The number of rows, and the padding token."""
    offset = values["position.offset"]
    rows = values["model.max_len"] + offset
    return {"max_position_embeddings": rows, "pad_token_id": offset - 1}


LENGTH = Functions(("max_position_embeddings", "pad_token_id"), read_length, write_length)
FAMILY = Family(
    preset="roberta",
    architectures=("RobertaForMaskedLM",),
    keys=(*BERT_KEYS, LENGTH),
    weights=(
        *embeddings("roberta.embeddings"),
        *blocks("roberta.encoder.layer.{i}"),
        *head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    ),
    prefix="roberta.",
    unused=UNUSED,
    tied=(
        ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
        ("lm_head.decoder.bias", "lm_head.bias"),
    ),
)
