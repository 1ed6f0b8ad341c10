"""Mixtures of experts with random weights, and the dense networks of their experts."""

import torch
from torch import nn

from xformer_kit.ffn import FFNS

DIM, WIDTH, EXPERTS = 7, 11, 5
X = torch.randn(3, 6, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EVERY_FORM = [
    {"name": "mlp", "activation": "relu2", "bias": True},
    {"name": "mlp", "inner_norm": True},
    {"name": "glu", "bias": True, "activated": "up", "clamp": 1.5, "offset": 1.0},
    {"name": "glu", "activation": "gelu", "inner_norm": True},
]


def drawn(part):
    draw = torch.Generator().manual_seed(1)
    for parameter in part.parameters():
        nn.init.normal_(parameter, generator=draw)
    return part.double()


def made(**options):
    node = {"name": "moe", "experts": EXPERTS, "width": WIDTH, **options}
    return drawn(FFNS.create(node, dim=DIM, norm=lambda dim: nn.LayerNorm(dim)))


def dense(expert, weights):
    """A dense network with the given state dict."""
    part = FFNS.create(
        {"width": WIDTH, **expert}, dim=DIM, norm=lambda dim: nn.LayerNorm(dim)
    ).double()
    part.load_state_dict(weights)
    return part


def of_expert(moe, expert):
    """The weights of one expert; an inner norm is shared by all experts."""
    stacked = moe.experts.state_dict().items()
    return {
        name: value if name.startswith("inner_norm") else value[expert] for name, value in stacked
    }
