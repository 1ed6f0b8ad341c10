"""Encoders, and models of two stacks."""

from tests.hub.case import COMMON, DIM, HEADS, LAYERS, POSITIONS, VOCAB, WIDTH, Case

BERT = {**COMMON, "pad_token_id": 0, "type_vocab_size": 3, "layer_norm_eps": 1e-3}

CASES: dict[str, Case] = {
    "bert": Case("BertForMaskedLM", BERT),
    "bert with relu": Case("BertForMaskedLM", {**BERT, "hidden_act": "relu"}),
    "roberta": Case("RobertaForMaskedLM", {**BERT, "pad_token_id": 1}),
    "distilbert": Case(
        "DistilBertForMaskedLM",
        {
            "vocab_size": VOCAB,
            "dim": DIM,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "hidden_dim": WIDTH,
            "max_position_embeddings": POSITIONS,
            "activation": "silu",
        },
    ),
    "albert": Case(
        "AlbertForMaskedLM",
        {**BERT, "embedding_size": 20, "num_hidden_layers": 5, "num_hidden_groups": 2},
    ),
    "albert of one layer": Case("AlbertForMaskedLM", {**BERT, "embedding_size": 20}),
    "electra": Case("ElectraForMaskedLM", {**BERT, "embedding_size": 20, "hidden_act": "relu"}),
    "electra of one width": Case("ElectraForMaskedLM", {**BERT, "embedding_size": DIM}),
    "modernbert": Case(
        "ModernBertForMaskedLM",
        {**COMMON, "pad_token_id": 0, "num_hidden_layers": 5, "local_attention": 8}
        | {"norm_eps": 1e-3, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "modernbert with biases": Case(
        "ModernBertForMaskedLM",
        {**COMMON, "pad_token_id": 0, "local_attention": 6, "hidden_activation": "silu"}
        | {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "decoder_bias": False}
        | {"classifier_bias": True, "classifier_activation": "relu"}
        | {"layer_types": ["full_attention", "full_attention", "sliding_attention"]}
        | {"cls_token_id": 1, "sep_token_id": 2},
    ),
}
