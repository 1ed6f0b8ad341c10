"""GPT-2, Llama and Gemma 3."""

from xformer_kit.parity.case import GPT2, LLAMA, SCALED, Case, rope

CASES: dict[str, Case] = {
    "gpt2": Case("GPT2LMHeadModel", GPT2),
    "gpt2 by layer": Case(
        "GPT2LMHeadModel", {**GPT2, "n_inner": 40, "scale_attn_by_inverse_layer_idx": True}
    ),
    "llama": Case("LlamaForCausalLM", {**LLAMA, **rope("default")}),
    "llama with biases": Case(
        "LlamaForCausalLM",
        {
            **LLAMA,
            "attention_bias": True,
            "mlp_bias": True,
            "head_dim": 10,
            "rms_norm_eps": 1e-3,
        },
    ),
    "llama 3.1": Case(
        "LlamaForCausalLM",
        {
            **LLAMA,
            "tie_word_embeddings": True,
            **rope("llama3", **SCALED, low_freq_factor=1.0, high_freq_factor=4.0),
        },
    ),
    "llama with linear rope": Case("LlamaForCausalLM", {**LLAMA, **rope("linear", factor=4.0)}),
    "llama with yarn": Case("LlamaForCausalLM", {**LLAMA, **rope("yarn", **SCALED)}),
    "gemma3": Case(
        "Gemma3ForCausalLM",
        {
            **LLAMA,
            "num_hidden_layers": 7,
            "head_dim": 10,
            "query_pre_attn_scalar": 14,
            "sliding_window": 5,
        },
    ),
}
