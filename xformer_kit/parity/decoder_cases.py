"""Other decoders."""

from xformer_kit.parity.case import (
    COMMON,
    DIM,
    GPT2,
    HEADS,
    LAYERS,
    LLAMA,
    POSITIONS,
    SCALED,
    VOCAB,
    Case,
    rope,
)

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
OPT = {key: value for key, value in COMMON.items() if key != "intermediate_size"} | {"ffn_dim": 40}
MPT = {
    "vocab_size": VOCAB,
    "d_model": DIM,
    "n_layers": LAYERS,
    "n_heads": HEADS,
    "max_seq_len": POSITIONS,
}
MOE = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 11,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.3,
}
SOME_WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
LATENT = {
    **COMMON,
    "num_key_value_heads": HEADS,
    "kv_lora_rank": 10,
    "q_lora_rank": 14,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 4,
    "v_head_dim": 7,
}
DEEPSEEK = {**LATENT, **MOE}
QWEN3_NEXT = {
    **LLAMA,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 12,
    "num_experts": 4,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 11,
    "shared_expert_intermediate_size": 22,
    **rope("default", partial_rotary_factor=0.5),
}
XGLM = {
    "vocab_size": VOCAB,
    "d_model": DIM,
    "num_layers": LAYERS,
    "attention_heads": HEADS,
    "ffn_dim": 40,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 1,
}
LFM2 = {
    **LLAMA,
    "layer_types": ["conv", "full_attention", "conv"],
    "block_multiple_of": 8,
    "block_ffn_dim_multiplier": 1.3,
}
GPT_OSS = {
    **LLAMA,
    "head_dim": 10,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "sliding_window": 5,
    "swiglu_limit": 0.8,
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
    "opt": Case("OPTForCausalLM", OPT),
    "opt of 350M": Case(
        "OPTForCausalLM",
        {
            **OPT,
            "do_layer_norm_before": False,
            "word_embed_proj_dim": 26,
            "activation_function": "gelu",
        },
    ),
    "galactica": Case(
        "OPTForCausalLM",
        {
            **OPT,
            "enable_bias": False,
            "layer_norm_elementwise_affine": False,
            "_remove_final_layer_norm": True,
            "tie_word_embeddings": False,
        },
    ),
    "stablelm": Case("StableLmForCausalLM", {**LLAMA, "layer_norm_eps": ODD_EPS}),
    "stablelm in parallel": Case(
        "StableLmForCausalLM",
        {
            **LLAMA,
            "use_parallel_residual": True,
            "use_qkv_bias": True,
            **rope("default", partial_rotary_factor=0.5),
        },
    ),
    "stablelm of 12B": Case(
        "StableLmForCausalLM", {**LLAMA, "qk_layernorm": True, "use_parallel_residual": True}
    ),
    "cohere": Case("CohereForCausalLM", {**LLAMA, "layer_norm_eps": ODD_EPS, "logit_scale": 0.3}),
    "cohere R+": Case(
        "CohereForCausalLM",
        {
            **LLAMA,
            "use_qk_norm": True,
            "attention_bias": True,
            "tie_word_embeddings": False,
            **rope("linear", factor=3.0),
        },
    ),
    "cohere2": Case("Cohere2ForCausalLM", {**LLAMA, "num_hidden_layers": 5, "sliding_window": 5}),
    "cohere2 of windows": Case(
        "Cohere2ForCausalLM",
        {**LLAMA, "layer_types": ["sliding_attention"] * LAYERS, "sliding_window": 4},
    ),
    "starcoder2": Case("Starcoder2ForCausalLM", {**LLAMA, "sliding_window": 5}),
    "starcoder2 without biases": Case(
        "Starcoder2ForCausalLM", {**LLAMA, "use_bias": False, "norm_epsilon": ODD_EPS}
    ),
    "glm4": Case("Glm4ForCausalLM", {**LLAMA, "head_dim": 12, "rms_norm_eps": ODD_EPS}),
    "glm4 without biases": Case(
        "Glm4ForCausalLM",
        {
            **LLAMA,
            "head_dim": 8,
            "attention_bias": False,
            **rope("default", partial_rotary_factor=1.0),
        },
    ),
    "ernie4.5": Case("Ernie4_5ForCausalLM", {**LLAMA, "head_dim": 10, "rms_norm_eps": ODD_EPS}),
    "ernie4.5 with biases": Case(
        "Ernie4_5ForCausalLM",
        {**LLAMA, "head_dim": 8, "use_bias": True, "tie_word_embeddings": False},
    ),
    "deepseek v2": Case(
        "DeepseekV2ForCausalLM",
        {
            **DEEPSEEK,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "num_experts_per_tok": 3,
            **rope("yarn", mscale=0.7, mscale_all_dim=0.9, **SCALED),
        },
    ),
    "deepseek v2 lite": Case(
        "DeepseekV2ForCausalLM",
        {**DEEPSEEK, "q_lora_rank": None, "attention_bias": True, "first_k_dense_replace": 0}
        | {"rms_norm_eps": ODD_EPS},
    ),
    "deepseek v3": Case(
        "DeepseekV3ForCausalLM",
        {**DEEPSEEK, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3},
    ),
    "deepseek v3 in halves": Case(
        "DeepseekV3ForCausalLM",
        {
            **DEEPSEEK,
            "n_group": 1,
            "topk_group": 1,
            "num_experts_per_tok": 3,
            "attention_bias": True,
            "rope_interleave": False,
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.5,
            "q_lora_rank": None,
            **rope("yarn", mscale=0.7, mscale_all_dim=0.9, **SCALED),
        },
    ),
    "glm4 moe": Case(
        "Glm4MoeForCausalLM",
        {**LLAMA, **MOE, "use_qk_norm": True, "attention_bias": True, "rms_norm_eps": ODD_EPS},
    ),
    "glm4 moe of groups": Case(
        "Glm4MoeForCausalLM",
        {**LLAMA, **MOE, "n_group": 2, "topk_group": 1, "norm_topk_prob": False, "head_dim": 12},
    ),
    "dots1": Case(
        "Dots1ForCausalLM",
        {**LLAMA, **MOE, "norm_topk_prob": True, "attention_bias": True, "rms_norm_eps": ODD_EPS},
    ),
    # With these numbers no token has other experts in bf16.
    "dots1 with windows": Case(
        "Dots1ForCausalLM",
        {**LLAMA, **MOE, "num_experts_per_tok": 3}
        | {"sliding_window": 6, "layer_types": SOME_WINDOWS},
    ),
    "gpt-oss": Case("GptOssForCausalLM", GPT_OSS, sdpa=False),
    "gpt-oss without biases": Case(
        "GptOssForCausalLM",
        {
            **GPT_OSS,
            "attention_bias": False,
            "layer_types": ["full_attention"] * LAYERS,
            "tie_word_embeddings": True,
            "num_experts_per_tok": 4,
            "rms_norm_eps": ODD_EPS,
            **rope("default"),
        },
        sdpa=False,
    ),
    "qwen3-next": Case("Qwen3NextForCausalLM", QWEN3_NEXT),
    "qwen3-next of other sizes": Case(
        "Qwen3NextForCausalLM",
        {
            **QWEN3_NEXT,
            "num_hidden_layers": 4,
            "layer_types": None,
            "num_experts": 5,
            "num_experts_per_tok": 4,
            "norm_topk_prob": False,
            "tie_word_embeddings": True,
            "rms_norm_eps": ODD_EPS,
            "linear_conv_kernel_dim": 3,
        },
    ),
    "minicpm3": Case("MiniCPM3ForCausalLM", {**LATENT, "dim_model_base": 20}),
    "minicpm3 of other factors": Case(
        "MiniCPM3ForCausalLM",
        {
            **LATENT,
            "rms_norm_eps": ODD_EPS,
            "q_lora_rank": None,
            "v_head_dim": None,
            "attention_bias": True,
            "scale_emb": 3,
            "scale_depth": 1.7,
            "tie_word_embeddings": False,
            **rope("yarn", mscale=0.7, mscale_all_dim=0.9, **SCALED),
        },
    ),
    "apertus": Case("ApertusForCausalLM", {**LLAMA, "rms_norm_eps": ODD_EPS}),
    "nemotron": Case("NemotronForCausalLM", {**LLAMA, "norm_eps": ODD_EPS}),
    "nemotron with biases": Case(
        "NemotronForCausalLM",
        {
            **LLAMA,
            "head_dim": 12,
            "attention_bias": True,
            "mlp_bias": True,
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            **rope("linear", factor=3.0, partial_rotary_factor=1.0),
        },
    ),
    "xglm": Case("XGLMForCausalLM", XGLM, sdpa=False),
    "xglm without factor": Case(
        "XGLMForCausalLM",
        {**XGLM, "scale_embedding": False, "activation_function": "relu"},
        sdpa=False,
    ),
    "lfm2": Case("Lfm2ForCausalLM", {**LFM2, "norm_eps": ODD_EPS}),
    "lfm2 of other sizes": Case(
        "Lfm2ForCausalLM",
        {
            **LFM2,
            "layer_types": None,
            "full_attn_idxs": [0],
            "conv_L_cache": 5,
            "block_auto_adjust_ff_dim": False,
            "tie_word_embeddings": False,
            **rope("default"),
        },
    ),
    "lfm2 without convolutions": Case("Lfm2ForCausalLM", {**LFM2, "layer_types": None}),
    "apertus with biases": Case(
        "ApertusForCausalLM",
        {**LLAMA, "attention_bias": True, "tie_word_embeddings": True, **rope("default")},
    ),
}
