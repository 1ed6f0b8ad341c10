"""Feed-forward networks: forward(x, tokens) -> (x, report), over (b, t, dim)."""

from xformer_kit.ffn import expert_choice, moe
from xformer_kit.ffn.dense import FFN, FFNS, MLP
from xformer_kit.ffn.routes import ROUTERS, Router, count_experts, route_all
