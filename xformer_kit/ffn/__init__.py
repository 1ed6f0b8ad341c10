"""Feed-forward networks: forward(x, context) -> (x, report), over (b, t, dim)."""

from xformer_kit.ffn import expert_choice, moe
from xformer_kit.ffn.dense import FFN, FFNS, MLP, NO_CONTEXT
from xformer_kit.ffn.routes import ROUTERS, Router, count_experts, route_all
