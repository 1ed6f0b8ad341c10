"""How do tokens look? Projections, caches, and what is done with scores."""

from xformer_kit.attention.base import (
    ATTENTIONS,
    Attention,
    channels,
    check_heads,
    device_and_dtype,
)
from xformer_kit.attention.differential import Differential
from xformer_kit.attention.first_steps import Dot, Mean
from xformer_kit.attention.gate import GATES, Gate, NoGate
from xformer_kit.attention.gated_delta import GatedDelta
from xformer_kit.attention.latent import Latent
from xformer_kit.attention.linear import Kernelized, Linear
from xformer_kit.attention.multi_head import (
    AS_PROJECTED,
    EIGHT_HEADS,
    SOFTMAX,
    AttentionWeights,
    HeadShape,
    MultiHead,
    Projections,
)
from xformer_kit.attention.qk_norm import L2, QK_NORMS, QKNorm
from xformer_kit.attention.recurrent import Recurrent, StateCache, exact, real_of, unmixed
from xformer_kit.attention.score import SCORES, Score, Softmax, counted
from xformer_kit.model.cache import Cache, KeyValueCache, WindowCache

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
    "AttentionWeights",
    "Cache",
    "Differential",
    "Dot",
    "Gate",
    "GatedDelta",
    "HeadShape",
    "Kernelized",
    "KeyValueCache",
    "Latent",
    "Linear",
    "Mean",
    "MultiHead",
    "NoGate",
    "Projections",
    "QKNorm",
    "Recurrent",
    "Score",
    "Softmax",
    "StateCache",
    "WindowCache",
    "channels",
    "check_heads",
    "counted",
    "device_and_dtype",
    "exact",
    "real_of",
    "unmixed",
]
