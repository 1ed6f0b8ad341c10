"""Sizes and arguments that the small models of transformers share."""

from typing import Any, NamedTuple

VOCAB, DIM, LAYERS, HEADS, WIDTH, POSITIONS = 37, 48, 3, 6, 52, 29


class Case(NamedTuple):
    """A model: the class of transformers, and the arguments of its config.

    sdpa: whether transformers computes it with sdpa as well.
    """

    architecture: str
    config: dict[str, Any]
    sdpa: bool = True


COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": DIM,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": WIDTH,
    "max_position_embeddings": POSITIONS,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
LLAMA = {**COMMON, "num_key_value_heads": 3}
GPT2 = {
    "vocab_size": VOCAB,
    "n_embd": DIM,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": POSITIONS,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def rope(name: str, **settings: Any) -> dict[str, Any]:
    """The settings of rotary positions."""
    return {"rope_parameters": {"rope_type": name, "rope_theta": 500.0, **settings}}


SCALED = {"factor": 8.0, "original_max_position_embeddings": 12}
