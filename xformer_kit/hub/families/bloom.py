"""BLOOM (BigScience Workshop, 2022, arXiv:2211.05100)."""

from xformer_kit.hub.common import fully_connected, tied
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Fixed, Key
from xformer_kit.hub.layouts import PER_HEAD
from xformer_kit.hub.weights import Weight, fused, linear

HERE, LAYER = "decoder.{i}", "transformer.h.{i}"
QKV = tuple(f"{HERE}.attn.{name}" for name in "qkv")

FAMILY = Family(
    preset="bloom",
    architectures=("BloomForCausalLM", "BloomModel"),
    keys=(
        Key("vocab_size", "model.vocab_size"),
        Key("hidden_size", "model.dim", also=("n_embed",)),
        Key("n_layer", "model.layers", also=("num_hidden_layers",)),
        Key("n_head", "attn.heads", also=("num_attention_heads",)),
        Key("layer_norm_epsilon", "norm.eps", 1e-5),
        Fixed("apply_residual_connection_post_layernorm", False),
        Fixed("n_inner", None),
        tied(True),
    ),
    weights=(
        Weight("transformer.word_embeddings.weight", "embed.weight"),
        Weight("lm_head.weight", "head.weight"),
        *linear("transformer.word_embeddings_layernorm", "decoder.embed_norm"),
        *linear("transformer.ln_f", "decoder.norm"),
        *linear(f"{LAYER}.input_layernorm", f"{HERE}.placement.attn.norm.0"),
        *linear(f"{LAYER}.post_attention_layernorm", f"{HERE}.placement.ffn.norm.0"),
        *fused(f"{LAYER}.self_attention.query_key_value", QKV, PER_HEAD),
        *linear(f"{LAYER}.self_attention.dense", f"{HERE}.attn.o"),
        *fully_connected(f"{LAYER}.mlp", "dense_h_to_4h", "dense_4h_to_h"),
    ),
    prefix="transformer.",
    tied=(("lm_head.weight", "transformer.word_embeddings.weight"),),
)
