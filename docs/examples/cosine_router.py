"""A router: python train.py components=[docs/examples/cosine_router.py] ffn=moe
ffn.router=cosine
"""

import torch
from torch import nn

from xformer_kit.ffn import ROUTERS, Router, count_experts, route_all
from xformer_kit.registry import above
from xformer_kit.tensors import hidden, scaled_to_unit


@ROUTERS.register("cosine")
class CosineRouter(Router):
    """softmax(cos(x P, e_i) / temperature) for the direction e_i of each expert; a token has the
    `top_k` experts with the highest one (Chi et al., 2022, arXiv:2204.09179, section 3.2).
    """

    parameter_info = {
        "project": hidden("channels_of_router", "dim"),
        "directions": hidden("experts", "channels_of_router"),
    }

    def __init__(
        self, dim: int, experts: int, top_k: int, *, temperature: float = 0.3
    ):  # of the softmax
        super().__init__(experts)
        self.top_k, self.temperature = top_k, temperature
        self.project = nn.Linear(dim, max(2, experts // 2), bias=False)
        self.directions = nn.Parameter(torch.empty(experts, max(2, experts // 2)))

    @classmethod
    def check(cls, options, context):
        yield from above(options, temperature=0)

    def forward(self, x, tokens):
        at, directions = map(scaled_to_unit, (self.project(x).flatten(0, 1), self.directions))
        weight, chosen = (at @ directions.T / self.temperature).softmax(-1).topk(self.top_k)
        routes = route_all(chosen, weight, self.experts)
        if not self.reports:
            return routes, {}
        real = chosen.new_ones(x.shape[:2]) if tokens.real is None else tokens.real.to(chosen)
        real = real.expand(x.shape[:2]).flatten()[:, None].expand_as(chosen)
        return routes, {"load": count_experts(chosen.flatten(), self.experts, real.flatten())}
