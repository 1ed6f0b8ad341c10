"""Extras: features added to a stack next to its blocks."""

from xformer_kit.extra.base import (
    EXTRAS,
    Extra,
    ExtraInput,
    Prediction,
    first_calls,
    from_memory,
    to_memory,
)
from xformer_kit.extra.deep_embed import DeepEmbed
from xformer_kit.extra.embedding_noise import EmbeddingNoise
from xformer_kit.extra.future_tokens import FutureTokens
from xformer_kit.extra.previous import previous, previous_places
from xformer_kit.extra.reinject import Reinject
from xformer_kit.extra.stochastic_depth import StochasticDepth
from xformer_kit.extra.token_shift import TokenShift
from xformer_kit.extra.unet import UNet
from xformer_kit.extra.unit_weights import UnitWeights
from xformer_kit.extra.value_residual import ValueResidual

__all__ = [
    "EXTRAS",
    "DeepEmbed",
    "EmbeddingNoise",
    "Extra",
    "ExtraInput",
    "FutureTokens",
    "Prediction",
    "Reinject",
    "StochasticDepth",
    "TokenShift",
    "UNet",
    "UnitWeights",
    "ValueResidual",
    "first_calls",
    "from_memory",
    "previous",
    "previous_places",
    "to_memory",
]
