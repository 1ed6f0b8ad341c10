"""More decoders."""

from xformer_kit.parity.case import LLAMA, SCALED, Case, rope

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
}
