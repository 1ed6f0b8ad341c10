"""Marian (Junczys-Dowmunt et al., 2018, arXiv:1804.00344), as OPUS-MT has it."""

from xformer_kit.hub.common import unread
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Key, Values
from xformer_kit.hub.stacks import (
    LOGITS_BIAS,
    OLD_KEYS,
    SHARED,
    SHARED_COPIES,
    STACKS,
    UNUSED,
    bart_blocks,
    bart_keys,
)
from xformer_kit.hub.weights import Weight


def read_sizes(config: Values) -> dict:
    """The vocabulary of the source, and that of the target if it is another one."""
    source = config["vocab_size"]
    target = config.get("decoder_vocab_size") or source
    return {"model.vocab_size": target, "model.source_vocab_size": source}


def write_sizes(values: Values) -> dict:
    """The same."""
    target, source = (values[f"model.{name}"] for name in ("vocab_size", "source_vocab_size"))
    return {
        "vocab_size": source,
        "decoder_vocab_size": target,
        "pad_token_id": min(source, target) - 1,
    }


FAMILY = Family(
    preset="marian",
    architectures=("MarianMTModel", "MarianModel"),
    keys=(
        Functions(("vocab_size", "decoder_vocab_size"), read_sizes, write_sizes),
        *bart_keys(),
        Key("share_encoder_decoder_embeddings", "model.share_embeddings", True),
        unread(*OLD_KEYS),
    ),
    weights=(
        *(SHARED, LOGITS_BIAS),
        Weight(
            tuple(f"model.{stack}.embed_tokens.weight" for stack in STACKS),
            ("source_embed.weight", "embed.weight"),
        ),
        *bart_blocks("norm"),
    ),
    unused=(*UNUSED, "model.*.embed_positions.weight"),
    tied=(*SHARED_COPIES, ("lm_head.weight", "model.decoder.embed_tokens.weight")),
    zero=("final_logits_bias",),
)
