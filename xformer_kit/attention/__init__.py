"""Attentions: projections, caches, gates, norms of queries and keys, and score functions."""

from xformer_kit.attention.base import (
    ATTENTIONS,
    Attention,
    channels,
)
from xformer_kit.attention.differential import Differential
from xformer_kit.attention.first_steps import Dot, Mean
from xformer_kit.attention.gate import GATES, Gate, NoGate
from xformer_kit.attention.gated_delta import GatedDelta
from xformer_kit.attention.heads import check_heads, head_channels
from xformer_kit.attention.latent import Latent
from xformer_kit.attention.linear import Kernelized, LinearAttention
from xformer_kit.attention.multi_head import (
    AS_PROJECTED,
    EIGHT_HEADS,
    SOFTMAX,
    HeadShape,
    MultiHead,
    Projections,
    WeightOptions,
)
from xformer_kit.attention.qk_norm import L2, QK_NORMS, QKNorm
from xformer_kit.attention.recurrent import Recurrent, StateCache, no_autocast, real_tokens, to_fp32
from xformer_kit.attention.score import SCORES, Score, SoftmaxScore, count_keys
from xformer_kit.tensors.cache import Cache, KeyValueCache, WindowCache

__all__ = [
    "AS_PROJECTED",
    "ATTENTIONS",
    "EIGHT_HEADS",
    "GATES",
    "L2",
    "QK_NORMS",
    "SCORES",
    "SOFTMAX",
    "Attention",
    "Cache",
    "Differential",
    "Dot",
    "Gate",
    "GatedDelta",
    "HeadShape",
    "Kernelized",
    "KeyValueCache",
    "Latent",
    "LinearAttention",
    "Mean",
    "MultiHead",
    "NoGate",
    "Projections",
    "QKNorm",
    "Recurrent",
    "Score",
    "SoftmaxScore",
    "StateCache",
    "WeightOptions",
    "WindowCache",
    "channels",
    "check_heads",
    "count_keys",
    "head_channels",
    "no_autocast",
    "real_tokens",
    "to_fp32",
]
