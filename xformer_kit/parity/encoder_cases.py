"""Encoders, and models of two stacks."""

from xformer_kit.parity.case import COMMON, DIM, HEADS, LAYERS, POSITIONS, VOCAB, WIDTH, Case

ENCODER = {**COMMON, "pad_token_id": 0, "layer_norm_eps": 1e-3}
BERT = {**ENCODER, "type_vocab_size": 3}
BART = {
    "vocab_size": VOCAB,
    "d_model": DIM,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 44,
    "decoder_ffn_dim": WIDTH,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
T5 = {
    "vocab_size": VOCAB,
    "d_model": DIM,
    "d_kv": 10,
    "d_ff": WIDTH,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 6,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 9,
    "layer_norm_epsilon": 1e-3,
    "decoder_start_token_id": 0,
}
DEBERTA = {
    **COMMON,
    "num_attention_heads": 4,
    "pad_token_id": 0,
    "relative_attention": True,
    "position_biased_input": False,
    "share_att_key": True,
    "pos_att_type": ["c2p", "p2c"],
}
GEMMA = {
    "vocab_size": VOCAB,
    "hidden_size": DIM,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 10,
    "intermediate_size": WIDTH,
    "max_position_embeddings": POSITIONS,
    "sliding_window": 4,
    "query_pre_attn_scalar": 14,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 3.0,
    "rms_norm_eps": 1e-3,
}
SCALED = {**BART, "scale_embedding": True, "activation_function": "relu"}

CASES: dict[str, Case] = {
    "bert": Case("BertForMaskedLM", BERT),
    "bert with relu": Case("BertForMaskedLM", {**BERT, "hidden_act": "relu"}),
    "roberta": Case("RobertaForMaskedLM", {**BERT, "pad_token_id": 1}),
    "xlm-roberta": Case("XLMRobertaForMaskedLM", {**BERT, "pad_token_id": 1}),
    "camembert": Case("CamembertForMaskedLM", {**BERT, "pad_token_id": 1}),
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
    "t5": Case("T5ForConditionalGeneration", T5),
    "t5 v1.1": Case(
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "t5 with gated silu": Case(
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-silu", "num_decoder_layers": None},
    ),
    "mt5": Case("MT5ForConditionalGeneration", T5),
    "umt5": Case("UMT5ForConditionalGeneration", T5),
    "bart": Case("BartForConditionalGeneration", BART),
    "mbart": Case("MBartForConditionalGeneration", SCALED),
    "pegasus": Case("PegasusForConditionalGeneration", SCALED),
    "marian": Case(
        "MarianMTModel", {**BART, "scale_embedding": True, "activation_function": "swish"}
    ),
    "marian with two vocabularies": Case(
        "MarianMTModel",
        {**BART, "vocab_size": 41, "decoder_vocab_size": VOCAB}
        | {"share_encoder_decoder_embeddings": False},
    ),
    "mpnet": Case(
        "MPNetForMaskedLM", {**ENCODER, "hidden_act": "relu", "pad_token_id": 1}, sdpa=False
    ),
    "deberta": Case(
        "DebertaV2ForMaskedLM",
        {
            **DEBERTA,
            "position_buckets": 6,
            "max_relative_positions": 9,
            "norm_rel_ebd": "layer_norm",
        },
        sdpa=False,
    ),
    "deberta without buckets": Case(
        "DebertaV2ForMaskedLM",
        {**DEBERTA, "num_attention_heads": 6, "max_relative_positions": 7, "hidden_act": "relu"}
        | {"pos_att_type": ["p2c"], "type_vocab_size": 2, "layer_norm_eps": 1e-3},
        sdpa=False,
    ),
    "t5gemma": Case(
        "T5GemmaForConditionalGeneration",
        {
            "vocab_size": VOCAB,
            "encoder": {**GEMMA, "num_hidden_layers": 2, "num_attention_heads": 4}
            | {"num_key_value_heads": 2, "intermediate_size": 44, "sliding_window": 3},
            "decoder": GEMMA,
        },
        sdpa=False,
    ),
    "fsmt": Case(
        "FSMTForConditionalGeneration",
        {key: value for key, value in BART.items() if key != "vocab_size"}
        | {"src_vocab_size": 41, "tgt_vocab_size": VOCAB, "pad_token_id": 1},
        sdpa=False,
    ),
    "fsmt of one matrix": Case(
        "FSMTForConditionalGeneration",
        {key: value for key, value in BART.items() if key != "vocab_size"}
        | {"src_vocab_size": VOCAB, "tgt_vocab_size": VOCAB, "tie_word_embeddings": True},
        sdpa=False,
    ),
    "m2m_100": Case("M2M100ForConditionalGeneration", {**BART, "pad_token_id": 1}),
}
