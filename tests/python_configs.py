"""Ten published kinds of models, written in Python."""

from xformer_kit.typed import Config

GPT2: Config = {
    "model": {"dim": 768, "layers": 12, "max_len": 1024, "dropout": 0.1},
    "attn": {"heads": 12, "bias": True, "dropout": 0.1},
    "position": "learned",
    "norm": "layer",
    "ffn": {"name": "mlp", "width": 3072, "bias": True, "activation": "gelu_tanh"},
}
LLAMA3: Config = {
    "model": {"dim": 4096, "layers": 32, "tie_embeddings": False, "max_len": 8192},
    "attn": {"heads": 32, "kv_heads": 8},
    "position": {"name": "rotary", "theta": 500_000},
    "norm": {"name": "rms", "eps": 1e-5},
    "ffn": {"name": "glu", "width": 14_336},
}
GEMMA3: Config = {
    "model": {
        "dim": 1152,
        "layers": 26,
        "embed_scale": "sqrt_dim",
        "decoder": {
            "pattern": [*["local"] * 5, "base"],
            "variants": {
                "local": {
                    "mask": {"name": "sliding_window", "window": 512},
                    "position": {"theta": 10_000},
                }
            },
        },
    },
    "attn": {"heads": 4, "kv_heads": 1, "head_dim": 256, "qk_norm": "head"},
    "position": {"theta": 1_000_000},
    "norm": {"name": "rms", "unit_offset": True},
    "placement": "sandwich",
    "ffn": {"name": "glu", "width": 6912, "activation": "gelu_tanh"},
}
BERT: Config = {
    "model": {
        "name": "encoder",
        "dim": 768,
        "layers": 12,
        "embed_norm": True,
        "final_norm": False,
        "token_types": 2,
        "dropout": 0.1,
        "max_len": 512,
    },
    "attn": {"heads": 12, "bias": True, "dropout": 0.1},
    "position": "learned",
    "norm": {"name": "layer", "eps": 1e-12},
    "placement": "post",
    "ffn": {"name": "mlp", "width": 3072, "bias": True, "activation": "gelu"},
}
T5: Config = {
    "model": {"name": "encoder_decoder", "dim": 512, "layers": 6},
    "attn": {"heads": 8, "head_dim": 64, "scale": 1.0},
    "position": "t5",
    "ffn": {"name": "mlp", "width": 2048, "activation": "relu"},
}
ENCODER: Config = {"model": "encoder"}
EXPERTS: Config = {
    "model": {"dim": 512, "layers": 8},
    "ffn": {"name": "moe", "experts": 8, "top_k": 2},
}
ALIBI: Config = {"position": "alibi", "ffn": "mlp"}
PARALLEL: Config = {
    "model": {"decoder": {"layout": [["attn", "ffn"]]}},
    "position": {"name": "rotary", "fraction": 0.25},
    "norm": "layer",
    "ffn": "mlp",
}
HALF = {"ffn": {"multiplier": 0.5}}
MACARON: Config = {"model": {"decoder": {"layout": [HALF, "attn", HALF]}}}

MODELS: dict[str, Config] = {
    "gpt2": GPT2,
    "llama3": LLAMA3,
    "gemma3": GEMMA3,
    "bert": BERT,
    "t5": T5,
    "encoder": ENCODER,
    "experts": EXPERTS,
    "alibi": ALIBI,
    "parallel": PARALLEL,
    "macaron": MACARON,
}
