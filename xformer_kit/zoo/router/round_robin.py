"""A router that assigns experts by the position of the token."""

from typing import Any

import torch

from xformer_kit.ffn import ROUTERS, Router, count_experts, route_all


@ROUTERS.register("round_robin", also_called=("roundrobin", "in_turn"))
class RoundRobin(Router):
    """Token i has the experts i top_k, ..., i top_k + top_k - 1 modulo the number of experts.

    Weights are 1 / top_k for every token (xformers, Meta, 2021: `RoundRobinGate`): a baseline with
    even loads that learns nothing.
    """

    # xformers: tokens are counted in the batch.   Here: in each text, so that texts do not depend
    # on each other.

    variants: list[dict[str, Any]] = [{}]
    breaks = dict.fromkeys(
        ("shift", "symmetry", "source order"),
        "which experts take a token follows from its place in the text",
    )

    def __init__(self, dim: int, experts: int, top_k: int):
        super().__init__(experts)
        self.top_k = top_k

    def forward(self, x, tokens):
        (b, t, _), real = x.shape, tokens.real
        position = tokens.position
        if position is None:
            position = torch.arange(t, device=x.device)[None]
        first = position.long().expand(b, -1).flatten()[:, None] * self.top_k
        chosen = (first + torch.arange(self.top_k, device=x.device)) % self.experts  # (tokens, k)
        dtype = torch.promote_types(x.dtype, torch.float32)
        weight = x.new_full(chosen.shape, 1 / self.top_k, dtype=dtype)
        routes = route_all(chosen, weight, self.experts)
        if not self.reports:
            return routes, {}
        ones = None
        if real is not None:
            ones = real.expand(b, -1).flatten()[:, None].expand_as(chosen).flatten().to(chosen)
        return routes, {"load": count_experts(chosen.flatten(), self.experts, ones)}
