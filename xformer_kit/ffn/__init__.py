"""Feed-forward networks: forward(x, tokens) -> (x, report), over (b, t, dim)."""

from xformer_kit.ffn.dense import FFN, FFNS, GLU, MLP, Dense
from xformer_kit.ffn.expert_choice import ExpertChoice
from xformer_kit.ffn.moe import EXPERTS, MixtureOfExperts
from xformer_kit.ffn.routes import ROUTERS, Router, count_experts, route_all

__all__ = [
    "EXPERTS",
    "FFN",
    "FFNS",
    "GLU",
    "MLP",
    "ROUTERS",
    "Dense",
    "ExpertChoice",
    "MixtureOfExperts",
    "Router",
    "count_experts",
    "route_all",
]
