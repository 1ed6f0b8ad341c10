"""Extras: features added to a stack next to its blocks."""

from xformer_kit.extra import (
    deep_embed,
    embedding_noise,
    future_tokens,
    reinject,
    stochastic_depth,
    token_shift,
    unet,
    unit_weights,
    value_residual,
)
from xformer_kit.extra.base import (
    EXTRAS,
    Chosen,
    Extra,
    ExtraInput,
    Prediction,
    first_layers,
    from_memory,
    to_memory,
)
from xformer_kit.extra.embedding_noise import EmbeddingNoise
from xformer_kit.extra.previous import PreviousPlaces, previous, previous_places
from xformer_kit.extra.token_shift import TokenShift
