"""Decoders that are near to Llama."""

from xformer_kit.parity.case import LLAMA, POSITIONS, SCALED, Case, rope

# Layers of both kinds; sizes of experts.
LAYERS = ["full_attention", "sliding_attention", "sliding_attention"]
MOE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 14}
FACTORS = {"short_factor": [1.0, 1.1, 1.3], "long_factor": [1.0, 2.0, 4.5]}

GRANITE = {
    **LLAMA,
    "embedding_multiplier": 1.7,
    "residual_multiplier": 0.6,
    "attention_multiplier": 0.2,
    "logits_scaling": 49.0,
}
EXAONE = {**LLAMA, "sliding_window": 5, "num_hidden_layers": 5}
GLM = {**LLAMA, "head_dim": 12}

CASES: dict[str, Case] = {
    "mistral": Case("MistralForCausalLM", {**LLAMA, **rope("default"), "sliding_window": 5}),
    "mistral without window": Case(
        "MistralForCausalLM", {**LLAMA, "head_dim": 10, "sliding_window": None}
    ),
    "mixtral": Case(
        "MixtralForCausalLM",
        {**LLAMA, "head_dim": 10, "num_local_experts": 5, "num_experts_per_tok": 3},
    ),
    "mixtral with a window": Case(
        "MixtralForCausalLM",
        {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 4, "sliding_window": 5},
    ),
    "qwen2": Case("Qwen2ForCausalLM", {**LLAMA, **rope("yarn", **SCALED)}),
    "qwen2 with windows": Case(
        "Qwen2ForCausalLM",
        {
            **LLAMA,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 1,
        },
    ),
    "qwen2_moe": Case(
        "Qwen2MoeForCausalLM", {**LLAMA, **MOE, "shared_expert_intermediate_size": 42}
    ),
    "qwen2_moe with a dense layer": Case(
        "Qwen2MoeForCausalLM",
        {
            **LLAMA,
            **MOE,
            "shared_expert_intermediate_size": 28,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
            "qkv_bias": False,
        },
    ),
    "qwen2_moe with windows": Case(
        "Qwen2MoeForCausalLM",
        {**LLAMA, **MOE, "shared_expert_intermediate_size": 42, "mlp_only_layers": [0, 1]}
        | {"use_sliding_window": True, "sliding_window": 5},
    ),
    "qwen3": Case("Qwen3ForCausalLM", {**LLAMA, "head_dim": 10, "rms_norm_eps": 1e-4}),
    "qwen3 with windows": Case(
        "Qwen3ForCausalLM",
        {
            **LLAMA,
            "head_dim": 8,
            "attention_bias": True,
            "layer_types": LAYERS,
            "use_sliding_window": True,
            "sliding_window": 5,
        },
    ),
    "qwen3_moe": Case(
        "Qwen3MoeForCausalLM", {**LLAMA, **MOE, "head_dim": 10, "norm_topk_prob": True}
    ),
    "qwen3_moe with dense layers": Case(
        "Qwen3MoeForCausalLM",
        {
            **LLAMA,
            **MOE,
            "decoder_sparse_step": 2,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 5,
        },
    ),
    "gemma": Case("GemmaForCausalLM", {**LLAMA, **rope("default"), "head_dim": 10}),
    "gemma2": Case(
        "Gemma2ForCausalLM",
        {
            **LLAMA,
            "head_dim": 10,
            "query_pre_attn_scalar": 14,
            "sliding_window": 5,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 2.5,
        },
        sdpa=False,
    ),
    "gemma2 without bounds of scores": Case(
        "Gemma2ForCausalLM",
        {
            **LLAMA,
            "head_dim": 10,
            "query_pre_attn_scalar": 25,
            "sliding_window": POSITIONS,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": 2.0,
            "rms_norm_eps": 1e-5,
        },
        sdpa=False,
    ),
    "phi3": Case("Phi3ForCausalLM", {**LLAMA, "sliding_window": 5, **rope("default")}),
    "phi3 short": Case(
        "Phi3ForCausalLM",
        {
            **LLAMA,
            "original_max_position_embeddings": 17,
            **rope("longrope", **FACTORS, partial_rotary_factor=0.75),
        },
    ),
    "phi3 long": Case(
        "Phi3ForCausalLM",
        {
            **LLAMA,
            "original_max_position_embeddings": 3,
            **rope("longrope", **FACTORS, partial_rotary_factor=0.75, attention_factor=1.2),
        },
    ),
    "olmo": Case("OlmoForCausalLM", {**LLAMA, **rope("default"), "clip_qkv": 0.4}),
    "olmo without bounds": Case("OlmoForCausalLM", {**LLAMA, **rope("default")}),
    "olmo2": Case("Olmo2ForCausalLM", {**LLAMA, "attention_bias": True, "rms_norm_eps": 1e-4}),
    "olmo3": Case(
        "Olmo3ForCausalLM",
        {
            **LLAMA,
            "num_hidden_layers": 5,
            "sliding_window": 5,
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "rope_theta": 700.0, **SCALED},
                "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            },
        },
    ),
    "olmoe": Case("OlmoeForCausalLM", {**LLAMA, "num_experts": 5, "num_experts_per_tok": 2}),
    "olmoe with a bound": Case(
        "OlmoeForCausalLM",
        {**LLAMA, "num_experts": 5, "num_experts_per_tok": 2, "clip_qkv": 0.4},
    ),
    "granite": Case("GraniteForCausalLM", {**GRANITE, "mlp_bias": True}),
    "granite of one matrix": Case(
        "GraniteForCausalLM", {**GRANITE, "tie_word_embeddings": True, "rms_norm_eps": 1e-5}
    ),
    "granitemoe": Case("GraniteMoeForCausalLM", {**GRANITE, "num_local_experts": 5}),
    "smollm3": Case(
        "SmolLM3ForCausalLM", {**LLAMA, "no_rope_layer_interval": 2, "attention_bias": True}
    ),
    "smollm3 with windows": Case(
        "SmolLM3ForCausalLM",
        {**LLAMA, "no_rope_layers": [1, 0, 0], "use_sliding_window": True, "sliding_window": 5}
        | {"layer_types": LAYERS},
    ),
    "seed_oss": Case(
        "SeedOssForCausalLM", {**LLAMA, "head_dim": 10, "mlp_bias": True, **rope("default")}
    ),
    "smollm3 with rope": Case("SmolLM3ForCausalLM", {**LLAMA, "no_rope_layers": [1, 1, 1]}),
    "helium": Case("HeliumForCausalLM", {**LLAMA, "head_dim": 8, **rope("default")}),
    "helium with biases": Case(
        "HeliumForCausalLM", {**LLAMA, "head_dim": 8, "attention_bias": True, "mlp_bias": True}
    ),
    "exaone4": Case("Exaone4ForCausalLM", {**EXAONE, "sliding_window_pattern": 3}),
    "exaone4 without window": Case(
        "Exaone4ForCausalLM",
        {**LLAMA, "head_dim": 10, "sliding_window": None, "layer_types": ["full_attention"] * 3},
    ),
    "ministral": Case(
        "MinistralForCausalLM",
        {**LLAMA, "head_dim": 10, "layer_types": LAYERS, "sliding_window": 5},
    ),
    "ministral without window": Case(
        "MinistralForCausalLM",
        {**LLAMA, "head_dim": 8, "layer_types": ["full_attention"] * 3, "sliding_window": 5},
    ),
    "arcee": Case("ArceeForCausalLM", {**LLAMA, "mlp_bias": True, **rope("yarn", **SCALED)}),
    "hunyuan": Case("HunYuanDenseV1ForCausalLM", {**LLAMA, "head_dim": 10}),
    "hunyuan with alpha": Case(
        "HunYuanDenseV1ForCausalLM",
        {
            **LLAMA,
            "head_dim": 8,
            "attention_bias": True,
            **rope("dynamic", alpha=50.0, factor=1.0, beta_fast=32, beta_slow=1, mscale=1.0),
        },
    ),
    "glm": Case("GlmForCausalLM", GLM),
    "glm without biases": Case(
        "GlmForCausalLM",
        {**GLM, "attention_bias": False, **rope("default", partial_rotary_factor=1.0)},
    ),
}
