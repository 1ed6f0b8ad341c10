"""Parts of the tables of models of two stacks."""

from typing import Any

import torch
from torch import Tensor

from xformer_kit.hub.common import activation, length
from xformer_kit.hub.keys import Entry, Fixed, Functions, Key, Values, refuse
from xformer_kit.hub.layouts import ONE_ROW
from xformer_kit.hub.weights import Weight, linear
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import Tokens

STACKS = ("encoder", "decoder")


def same_layers(config: Values) -> dict:
    """Files may repeat the encoder's layers as num_hidden_layers."""
    layers = config.get("num_hidden_layers")
    if layers not in (None, config.get("encoder_layers")):
        raise refuse("num_hidden_layers", layers, "must be encoder_layers")
    return {}


def scale_embedding(default: bool) -> Key:
    """Whether embeddings are multiplied by the root of their channels."""
    return Key(
        "scale_embedding",
        "model.embed_scale",
        default,
        to_ours=lambda scaled: "sqrt_dim" if scaled else 1.0,
        to_theirs=lambda scale: scale == "sqrt_dim",
    )


def bart_keys(function: str = "gelu", scaled: bool = False) -> tuple[Entry, ...]:
    """The keys of BART and of models that were made from its code. function, scaled: defaults."""
    sizes: list[Entry] = []
    for stack in STACKS:
        sizes += [
            Key(f"{stack}_layers", f"model.{stack}.layers", 12),
            Key(f"{stack}_attention_heads", f"model.{stack}.attn.heads", 16),
            Key(f"{stack}_ffn_dim", f"model.{stack}.ffn.width", 4096),
        ]
    return (
        Key("d_model", "model.dim"),
        *sizes,
        Functions(("num_hidden_layers",), same_layers),
        activation("activation_function", function),
        scale_embedding(scaled),
        length(1024),
        Fixed("is_decoder", False),
        Fixed("tie_word_embeddings", True),
    )


# What the classes of old files, which are gone, did otherwise.
OLD_KEYS = (
    *("add_bias_logits", "add_final_layer_norm", "normalize_before", "normalize_embedding"),
    *("extra_pos_embeddings", "static_position_embeddings", "classif_dropout", "save_step"),
    "force_bos_token_to_be_generated",
)


def bart_blocks(norm: str = "norm.0") -> tuple[Weight, ...]:
    """Maps and norms of the layers of both stacks. norm: of our placement."""
    found: list[Weight] = []
    for stack in STACKS:
        here, there = f"{stack}.{{i}}", f"model.{stack}.layers.{{i}}"
        attentions = {"attn": "self_attn"}
        if stack == "decoder":
            attentions["cross"] = "encoder_attn"
        maps = {"ffn.up": "fc1", "ffn.down": "fc2", f"placement.ffn.{norm}": "final_layer_norm"}
        for ours, theirs in attentions.items():
            maps |= {f"{ours}.{name}": f"{theirs}.{name}_proj" for name in "qkv"}
            maps |= {f"{ours}.o": f"{theirs}.out_proj"}
            maps |= {f"placement.{ours}.{norm}": f"{theirs}_layer_norm"}
        found += [w for o, t in maps.items() for w in linear(f"{there}.{t}", f"{here}.{o}")]
    return tuple(found)


def of_stacks(theirs: str, ours: str) -> tuple[Weight, ...]:
    """A map or a norm of both stacks, next to their layers."""
    return tuple(
        weight
        for stack in STACKS
        for weight in linear(f"model.{stack}.{theirs}", f"{stack}.{ours}")
    )


SHARED = Weight("model.shared.weight", "embed.weight", without="source_embed.weight")
LOGITS_BIAS = Weight("final_logits_bias", "head.bias", ONE_ROW)
SHARED_COPIES = tuple(
    (name, "model.shared.weight")
    for name in ("lm_head.weight", *(f"model.{stack}.embed_tokens.weight" for stack in STACKS))
)
TABLES = tuple(
    Weight(f"model.{stack}.embed_positions.weight", f"{stack}.position.base.weight")
    for stack in STACKS
)
UNUSED = ("model.encoder.version", "model.decoder.version", "encoder.version", "decoder.version")


def sinusoids(positions: int, dim: int, **options: Any) -> Tensor:
    """A table of sinusoids, all sines first, (positions, dim) in fp32."""
    node = {"name": "sinusoidal", "layout": "concatenated", **options}
    rows = Tokens(position=torch.arange(positions)[None])
    return POSITIONS.create(node, dim=dim).embed(torch.zeros(1, positions, dim), rows)[0]
