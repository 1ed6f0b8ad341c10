"""T5Gemma (Zhang et al., 2025, arXiv:2504.06225): an encoder and a decoder with Gemma 2's layers,
of one width.
"""

from collections.abc import Mapping

from xformer_kit.hub.common import (
    activation,
    gated_ffn,
    layer_types,
    length,
    offset_norm,
    projections,
    rope,
)
from xformer_kit.hub.family import IGNORED, Family
from xformer_kit.hub.keys import Entry, Fixed, Functions, Key, Values, refuse
from xformer_kit.hub.weights import Weight

KINDS = {"sliding_attention": "local", "full_attention": "base"}
STACKS = ("encoder", "decoder")
NODE = {"cross_attention_hidden_size", "dropout_rate", "vocab_size"}  # keys without an option


def kinds(config: Values) -> list[str]:
    """The kinds of layers of a file without layer_types."""
    layers = range(config.get("num_hidden_layers", 26))
    return ["full_attention" if at % 2 else "sliding_attention" for at in layers]


def stack_keys(stack: str) -> tuple[Entry, ...]:
    """The keys of the node of a stack: the encoder's options are differences from the shared ones,
    and its window does not count the query.
    """
    here, more = f"model.{stack}", int(stack == "encoder")
    own = f"{here}." if stack == "encoder" else ""
    return (
        Key("hidden_size", "model.dim", 2304),
        Key("num_hidden_layers", f"{here}.layers", 26),
        Key("num_attention_heads", f"{own}attn.heads", 8),
        Key("num_key_value_heads", f"{own}attn.kv_heads", 4),
        Key("head_dim", f"{own}attn.head_dim", 256),
        Key("intermediate_size", f"{own}ffn.width", 9216),
        Key(
            "sliding_window",
            f"{here}.variants.local.mask.window",
            4096,
            to_ours=lambda window: window + more,
            to_theirs=lambda window: window - more,
        ),
        layer_types(KINDS, kinds, stack=stack),
        activation("hidden_activation", "gelu_pytorch_tanh"),
        Key("rms_norm_eps", "norm.eps", 1e-6),
        length(8192),
        rope(),
        Key(
            "query_pre_attn_scalar",
            "attn.scale",
            256,
            to_ours=lambda scalar: scalar**-0.5,
            to_theirs=lambda scale: round(scale**-2),
        ),
        Key("attn_logit_softcapping", "attn.score.softcap", 50.0),
        Key("attention_bias", "attn.bias", False),
        Fixed("tie_word_embeddings", True),
    )


SOFTCAP = Key("final_logit_softcapping", "model.logit_softcap", 30.0)  # only the decoder's counts
TABLES = {
    "encoder": stack_keys("encoder"),
    "decoder": (*stack_keys("decoder"), SOFTCAP),
}


def read(config: Values) -> dict:
    """Both stacks, which share the options that our stacks share."""
    nodes: Mapping[str, Values] = {stack: config.get(stack) or {} for stack in STACKS}
    found: dict = {}
    for stack, table in TABLES.items():
        known = IGNORED.union(NODE, SOFTCAP.keys, *(entry.keys for entry in table))
        for key, value in nodes[stack].items():
            if key not in known and value is not None:
                raise refuse(f"{stack}.{key}", value, "is a key whose meaning is not known here")
        for path, value in (item for entry in table for item in entry.read(nodes[stack]).items()):
            if found.setdefault(path, value) != value:
                raise refuse(stack, f"{value} and {found[path]}", f"needs one {path}")
    return found | {
        "model.vocab_size": nodes["decoder"].get("vocab_size", 256_000),
        "model.source_vocab_size": nodes["encoder"].get("vocab_size", 256_000),
    }


def write(values: Values) -> dict:
    """The nodes of both stacks."""
    sizes = {"encoder": "model.source_vocab_size", "decoder": "model.vocab_size"}
    keys: dict = {"vocab_size": values["model.vocab_size"]}
    for stack, table in TABLES.items():
        keys[stack] = {"model_type": "t5_gemma_module", "vocab_size": values[sizes[stack]]}
        for entry in table:
            keys[stack] |= entry.write(values)
    return keys


def blocks(stack: str) -> tuple[Weight, ...]:
    """Maps and norms of a stack."""
    here, there = f"{stack}.{{i}}", f"model.{stack}.layers.{{i}}"
    names = {"attn": "self_attn", "ffn": "feedforward"}
    if stack == "decoder":
        names["cross"] = "cross_attn"
    norms = {
        f"{there}.{when}_{theirs}_layernorm": f"{here}.placement.{ours}.{place}.0"
        for ours, theirs in names.items()
        for when, place in {"pre": "before", "post": "after"}.items()
    }
    attentions = {ours: theirs for ours, theirs in names.items() if ours != "ffn"}
    return (
        *(w for o, t in attentions.items() for w in projections(f"{there}.{t}", f"{here}.{o}")),
        *(offset_norm(theirs, ours) for theirs, ours in norms.items()),
        *gated_ffn(f"{there}.mlp", f"{here}.ffn"),
        offset_norm(f"model.{stack}.norm", f"{stack}.norm"),
    )


FAMILY = Family(
    preset="t5gemma",
    architectures=("T5GemmaForConditionalGeneration",),
    keys=(
        Functions((*STACKS, "vocab_size"), read, write),
        Fixed("tie_word_embeddings", True),
    ),
    weights=(
        Weight("model.decoder.embed_tokens.weight", "embed.weight"),
        Weight("model.encoder.embed_tokens.weight", "source_embed.weight"),
        *blocks("encoder"),
        *blocks("decoder"),
    ),
    tied=(("lm_head.out_proj.weight", "model.decoder.embed_tokens.weight"),),
)
