"""Other decoders."""

from tests.hub.case import COMMON, DIM, GPT2, HEADS, LAYERS, LLAMA, POSITIONS, VOCAB, Case, rope

ODD_EPS = 3e-4
BLOOM = {
    "vocab_size": VOCAB,
    "hidden_size": DIM,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "layer_norm_epsilon": ODD_EPS,
}
NEO = {
    "vocab_size": VOCAB,
    "hidden_size": DIM,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "max_position_embeddings": POSITIONS,
    "attention_types": [[["global", "local"], 1], [["local"], 1]],
    "window_size": 5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FALCON = {key: value for key, value in COMMON.items() if key != "intermediate_size"}
MPT = {
    "vocab_size": VOCAB,
    "d_model": DIM,
    "n_layers": LAYERS,
    "n_heads": HEADS,
    "max_seq_len": POSITIONS,
}

CASES: dict[str, Case] = {
    "gptj": Case(
        "GPTJForCausalLM",
        {**GPT2, "rotary_dim": 6, "n_inner": 40, "layer_norm_epsilon": ODD_EPS},
        sdpa=False,
    ),
    "gpt-neox": Case("GPTNeoXForCausalLM", {**COMMON, "layer_norm_eps": ODD_EPS}),
    "gpt-neox in sequence": Case(
        "GPTNeoXForCausalLM",
        {
            **COMMON,
            "use_parallel_residual": False,
            "attention_bias": False,
            "hidden_act": "gelu_new",
            **rope("linear", factor=3.0, partial_rotary_factor=0.5),
        },
    ),
    "gpt-neo": Case("GPTNeoForCausalLM", NEO, sdpa=False),
    "gpt-neo of another width": Case(
        "GPTNeoForCausalLM",
        {
            **NEO,
            "intermediate_size": 40,
            "layer_norm_epsilon": ODD_EPS,
            "attention_types": [[["global"], 3]],
        },
        sdpa=False,
    ),
    "phi": Case("PhiForCausalLM", {**LLAMA, "layer_norm_eps": ODD_EPS}),
    "phi with normalised queries": Case(
        "PhiForCausalLM",
        {**COMMON, "qk_layernorm": True, **rope("default", partial_rotary_factor=0.75)},
    ),
    "falcon of 7B": Case("FalconForCausalLM", {**FALCON, "layer_norm_epsilon": ODD_EPS}),
    "falcon of 40B": Case(
        "FalconForCausalLM",
        {
            **FALCON,
            "new_decoder_architecture": True,
            "num_kv_heads": 3,
            "ffn_hidden_size": 40,
            "activation": "gelu_new",
            **rope("default"),
        },
    ),
    "falcon of 11B": Case(
        "FalconForCausalLM",
        {
            **FALCON,
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
            "tie_word_embeddings": False,
        },
    ),
    "falcon with alibi": Case(
        "FalconForCausalLM",
        {
            **FALCON,
            "alibi": True,
            "multi_query": False,
            "parallel_attn": False,
            "bias": True,
        },
    ),
    "bloom": Case("BloomForCausalLM", BLOOM, sdpa=False),
    "mpt": Case("MptForCausalLM", MPT, sdpa=False),
    "mpt with clipped projections": Case(
        "MptForCausalLM",
        {
            **MPT,
            "n_heads": 4,
            "layer_norm_epsilon": ODD_EPS,
            "attn_config": {"clip_qkv": 0.7, "softmax_scale": 0.3},
        },
        sdpa=False,
    ),
}
