"""Feed-forward networks: forward(x, context) -> (x, report), over (b, t, dim)."""

from xformer_kit.ffn import expert_choice, moe
from xformer_kit.ffn.dense import FFN, FFNS, MLP, NO_CONTEXT, Dense, hidden_width
from xformer_kit.ffn.moe import EXPERTS
from xformer_kit.ffn.routes import ROUTERS, Router, Routes, count_experts, route_all
