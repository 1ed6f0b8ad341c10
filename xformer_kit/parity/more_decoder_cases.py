"""More decoders."""

from xformer_kit.parity.case import COMMON, LLAMA, SCALED, Case, rope

ODD_EPS = 3e-4

CASES: dict[str, Case] = {
    "nanochat": Case(
        "NanoChatForCausalLM",
        {
            **LLAMA,
            "hidden_act": "gelu_new",
            "rms_norm_eps": ODD_EPS,
            "final_logit_softcapping": 2.5,
            **rope("default"),
        },
    ),
    "nanochat with biases": Case(
        "NanoChatForCausalLM",
        {
            **LLAMA,
            "head_dim": 10,
            "attention_bias": True,
            "final_logit_softcapping": None,
            "tie_word_embeddings": True,
            **rope("yarn", **SCALED),
        },
    ),
    "persimmon": Case(
        "PersimmonForCausalLM",
        {**COMMON, "layer_norm_eps": ODD_EPS, **rope("default", partial_rotary_factor=0.75)},
    ),
    "persimmon without norms of queries": Case(
        "PersimmonForCausalLM",
        {
            **COMMON,
            "qk_layernorm": False,
            "hidden_act": "gelu",
            "tie_word_embeddings": True,
            **rope("linear", factor=3.0, partial_rotary_factor=0.5),
        },
    ),
    "vaultgemma": Case(
        "VaultGemmaForCausalLM",
        {
            **LLAMA,
            "head_dim": 10,
            "query_pre_attn_scalar": 14,
            "sliding_window": 5,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 2.5,
            "attention_bias": True,
            "rms_norm_eps": ODD_EPS,
        },
        sdpa=False,
    ),
    "vaultgemma without bounds of scores": Case(
        "VaultGemmaForCausalLM",
        {
            **LLAMA,
            "head_dim": 10,
            "query_pre_attn_scalar": 25,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "sliding_window": 5,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "hidden_activation": "silu",
            "tie_word_embeddings": False,
            **rope("default"),
        },
        sdpa=False,
    ),
    "jais2": Case(
        "Jais2ForCausalLM",
        {**LLAMA, "head_dim": 10, "layer_norm_eps": ODD_EPS, **rope("default")},
    ),
    "jais2 without biases": Case(
        "Jais2ForCausalLM",
        {
            **LLAMA,
            "attention_bias": False,
            "mlp_bias": False,
            "hidden_act": "silu",
            "tie_word_embeddings": True,
            **rope("llama3", **SCALED, low_freq_factor=1.0, high_freq_factor=4.0),
        },
    ),
    "biogpt": Case("BioGptForCausalLM", {**COMMON, "layer_norm_eps": ODD_EPS}),
    "biogpt with a head of its own": Case(
        "BioGptForCausalLM",
        {
            **COMMON,
            "hidden_act": "gelu_new",
            "scale_embedding": False,
            "tie_word_embeddings": False,
        },
    ),
}
