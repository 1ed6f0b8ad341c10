"""FSMT: the translation models of fairseq for WMT 2019 (Ng et al., 2019, arXiv:1907.06616)."""

from torch import Tensor

from xformer_kit.hub.common import unread
from xformer_kit.hub.families.m2m_100 import PADDING
from xformer_kit.hub.family import Family
from xformer_kit.hub.keys import Functions, Values
from xformer_kit.hub.stacks import OLD_KEYS, STACKS, bart_blocks, bart_keys, sinusoids
from xformer_kit.hub.weights import Weight


def tables(config: Values) -> dict[str, Tensor]:
    """The tables of sinusoids, which the files have; the row of the padding token is 0."""
    padding = config["pad_token_id"]
    rows = config["max_position_embeddings"] + padding + 1
    table = sinusoids(rows, config["d_model"], up_to_theta=True)
    table[padding] = 0
    return {f"model.{stack}.embed_positions.weight": table for stack in STACKS}


def read_sizes(config: Values) -> dict:
    """The vocabularies of source and target, and whether all three matrices are one."""
    tied = config.get("tie_word_embeddings", False)
    return {
        "model.vocab_size": config.get("tgt_vocab_size", 42024),
        "model.source_vocab_size": config.get("src_vocab_size", 42024),
        "model.tie_embeddings": tied,
        "model.share_embeddings": tied,
    }


def write_sizes(values: Values) -> dict:
    """The same."""
    return {
        "tgt_vocab_size": values["model.vocab_size"],
        "src_vocab_size": values["model.source_vocab_size"],
        "tie_word_embeddings": values["model.tie_embeddings"],
    }


FAMILY = Family(
    preset="fsmt",
    architectures=("FSMTForConditionalGeneration",),
    keys=(
        Functions(
            ("tgt_vocab_size", "src_vocab_size", "tie_word_embeddings"), read_sizes, write_sizes
        ),
        *(entry for entry in bart_keys("relu", True) if entry.keys != ("tie_word_embeddings",)),
        PADDING,
        unread(*OLD_KEYS, "decoder", "langs"),
    ),
    weights=(
        Weight("model.decoder.embed_tokens.weight", "embed.weight"),
        Weight("model.encoder.embed_tokens.weight", "source_embed.weight"),
        Weight("model.decoder.output_projection.weight", "head.weight"),
        *bart_blocks("norm"),
    ),
    unused=("model.*.embed_positions.weight",),
    tied=tuple(
        (f"model.{name}.weight", "model.decoder.embed_tokens.weight")
        for name in ("encoder.embed_tokens", "decoder.output_projection")
    ),
    computed=tables,
)
