"""Attentions: projections, caches, gates, norms of queries and keys, and score functions."""

from xformer_kit.attention import differential, first_steps, gated_delta
from xformer_kit.attention.base import (
    ATTENTIONS,
    Attention,
    channels,
)
from xformer_kit.attention.differential import Differential
from xformer_kit.attention.gate import GATES, Gate, NoGate
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
from xformer_kit.attention.recurrent import Recurrent, real_tokens
from xformer_kit.attention.score import SCORES, Score, SoftmaxScore, count_keys
from xformer_kit.tensors.cache import Cache, KeyValueCache, StateCache, WindowCache
from xformer_kit.tensors.precision import at_least_fp32, no_autocast
