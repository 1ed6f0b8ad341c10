"""config.json files as they were published before transformers 5, with small sizes."""

from typing import Any

from xformer_kit.hub.family import IGNORED, of_type

SIZES = {
    "vocab_size": 263,
    "hidden_size": 48,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "intermediate_size": 52,
    "max_position_embeddings": 131_072,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.02,
    "pad_token_id": None,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.0",
    "use_cache": True,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "attention_factor": 1.2079441541679836,
    "original_max_position_embeddings": 8192,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
QWEN = {
    "rope_theta": 1e6,
    "sliding_window": 131_072,
    "max_window_layers": 6,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
}
EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 14,
    "decoder_sparse_step": 1,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
}
GEMMA2 = {
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "attention_bias": False,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "cache_implementation": "hybrid",
    "head_dim": 16,
    "query_pre_attn_scalar": 14,
    "rope_theta": 10_000.0,
    "sliding_window": 4096,
    "sliding_window_size": 4096,
}
PHI3 = {
    "attention_bias": False,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "original_max_position_embeddings": 4096,
    "rope_theta": 10_000.0,
}
FACTORS = {"short_factor": [1.0, 1.1, 1.3], "long_factor": [1.0, 2.0, 4.5]}

# model_type and what is special -> the keys that are not in SIZES.
LFM2 = {
    "hidden_act": None,
    "rms_norm_eps": None,
    "block_auto_adjust_ff_dim": True,
    "block_dim": 48,
    "block_ff_dim": 100,
    "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 8,
    "block_norm_eps": 1e-5,
    "block_use_swiglu": True,
    "conv_L_cache": 4,
    "conv_bias": False,
    "conv_dim": 48,
    "full_attn_idxs": [2, 5, 7],
    "norm_eps": 1e-4,
    "num_heads": 6,
    "rope_theta": 1e6,
    "tie_embedding": True,
    "use_pos_enc": True,
}
OLD_FILES: dict[str, dict[str, Any]] = {
    "lfm2": LFM2,
    "nemotron": {
        "hidden_act": "relu2",
        "rms_norm_eps": None,
        "norm_eps": 1e-4,
        "head_dim": 16,
        "partial_rotary_factor": 0.25,
        "rope_theta": 1e5,
        "tie_word_embeddings": False,
    },
    "llama": {"rope_theta": 5e5, "rope_scaling": LLAMA3, "pretraining_tp": 1, "mlp_bias": False},
    "llama linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "mistral": {"rope_theta": 1e4, "sliding_window": 4096, "tie_word_embeddings": False},
    "mistral without window": {"rope_theta": 1e6, "sliding_window": None, "head_dim": 16},
    "mixtral": {"rope_theta": 1e6, "sliding_window": None, "num_local_experts": 8},
    "qwen2": {**QWEN, "use_mrope": False},
    "qwen2 with windows": {**QWEN, "use_sliding_window": True, "sliding_window": 32},
    "qwen2 with yarn": {
        **QWEN,
        "rope_scaling": {
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32_768,
        },
    },
    "qwen2_moe": {**QWEN, **EXPERTS, "shared_expert_intermediate_size": 28},
    "qwen3": {**QWEN, "head_dim": 16, "attention_bias": False, "rope_scaling": None},
    "qwen3_moe": {**QWEN, **EXPERTS, "head_dim": 16, "mlp_only_layers": [], "norm_topk_prob": True},
    "gemma": {"hidden_act": "gelu", "hidden_activation": None, "head_dim": 16, "rope_theta": 1e4},
    "gemma2": GEMMA2,
    "gemma3_text": {
        "hidden_act": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "cache_implementation": "hybrid",
        "head_dim": 16,
        "query_pre_attn_scalar": 14,
        "rope_local_base_freq": 10_000,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "rope_theta": 1_000_000,
        "sliding_window": 512,
        "sliding_window_pattern": 3,
    },
    "phi3": {**PHI3, "sliding_window": 2047, "rope_scaling": None},
    "phi3 long": {
        **PHI3,
        "partial_rotary_factor": 0.75,
        "rope_scaling": {"type": "longrope", **FACTORS},
        "full_attn_mod": 1,
        "interpolate_factor": 1,
        "lm_head_bias": False,
    },
    "olmo": {
        "rms_norm_eps": None,
        "rope_theta": 10_000.0,
        "clip_qkv": 8.0,
        "attention_bias": False,
    },
    "olmo2": {"rope_theta": 500_000, "rope_scaling": None, "attention_bias": False},
    "olmo3": {"rope_theta": 500_000, "rope_scaling": YARN, "sliding_window": 4096},
    "olmoe": {"rope_theta": 1e4, "num_experts": 6, "num_experts_per_tok": 2, "clip_qkv": None},
    "granite": {
        "rope_theta": 1e7,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.015625,
        "logits_scaling": 8.0,
    },
    "granitemoe": {"rope_theta": 1e4, "num_local_experts": 6, "logits_scaling": 6.0},
    "smollm3": {
        "rope_theta": 5e6,
        "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0],
        "no_rope_layer_interval": 4,
        "max_window_layers": 28,
        "use_sliding_window": False,
        "sliding_window": None,
        "pretraining_tp": 1,
    },
    "seed_oss": {"rope_theta": 1e7, "head_dim": 16, "rope_scaling": {"rope_type": "default"}},
    "helium": {"rope_theta": 1e5, "head_dim": 8},
    "exaone4": {
        "rope_theta": 1e6,
        "rope_scaling": {**LLAMA3, "factor": 16.0},
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
        "head_dim": 16,
    },
    "arcee": {"hidden_act": "relu2", "rope_theta": 1e4, "rope_scaling": YARN},
    "hunyuan_v1_dense": {
        "head_dim": 16,
        "eod_token_id": 127_957,
        "rope_theta": 10_000.0,
        "rope_scaling": {
            "type": "dynamic",
            "alpha": 1000.0,
            "factor": 1.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 0.0,
        },
    },
    "starcoder2": {
        "rms_norm_eps": None,
        "norm_epsilon": 1e-5,
        "rope_theta": 1e6,
        "sliding_window": 4096,
    },
    "glm": {"head_dim": 16, "partial_rotary_factor": 0.5, "rope_theta": 1e4},
    "glm4": {"head_dim": 16, "partial_rotary_factor": 0.5, "rope_theta": 1e4},
}


def keys_of(model_type: str) -> set[str]:
    """The keys that a family reads."""
    return {key for entry in of_type(model_type).keys for key in entry.keys}


def small(model_type: str, **changes) -> dict:
    """A small config.json of a family, of the keys that it reads."""
    old = next((keys for name, keys in OLD_FILES.items() if name.split()[0] == model_type), {})
    known = keys_of(model_type) | IGNORED
    keys = {key: value for key, value in {**SIZES, **old}.items() if key in known}
    return {**keys, "model_type": model_type, **changes}
