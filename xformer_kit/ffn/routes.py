"""The contract of a router, and the routes that it returns."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.ffn.grouped import Groups
from xformer_kit.registry import Registry
from xformer_kit.tensors.report import Report
from xformer_kit.tensors.tokens import Tokens


class Routes(NamedTuple):
    """The pairs of tokens and experts to compute, one row per pair, sorted by expert."""

    groups: Groups  # rows of each expert
    expert: Tensor  # (rows,)
    token: Tensor  # (rows,), indices into all tokens of the batch
    # (rows,), in fp32 or better; or (tokens, k) if `back` is set
    weight: Tensor
    back: Tensor | None = None  # (tokens, k): the rows of each token, if all have k rows

    def combine(self, rows: Tensor, tokens: int) -> Tensor:
        """Returns the weighted sum of each token's rows: (rows, dim) -> (tokens, dim)."""
        weight = self.weight.to(rows.dtype)
        if self.back is not None:
            # (n, 1, k) (n, k, dim) -> (n, dim)
            return torch.bmm(weight[:, None], rows[self.back])[:, 0]
        # With `accumulate` the sum is deterministic on CUDA too, unlike index_add.
        empty = rows.new_zeros(tokens, rows.shape[-1])
        return empty.index_put((self.token,), rows * weight[:, None], accumulate=True)


class Router(nn.Module):
    """Base of all routers."""

    # Laws that the router's mathematics breaks, with the reason.
    breaks: dict[str, str] = {}

    def __init__(self, experts: int):
        super().__init__()
        self.experts = experts

    @property
    def reports(self) -> bool:
        """Whether reports are used: not in generation and evaluation."""
        return self.training or torch.is_grad_enabled()

    def forward(self, x: Tensor, tokens: Tokens) -> tuple[Routes, Report]:
        """x (b, t, dim), tokens of (b, t) -> the routes from tokens to experts, and a report:
        `load`, (experts,), the number of real tokens that each expert computes, and the router's
        `loss`.
        """
        raise NotImplementedError

    def after_step(self, load: Tensor) -> None:
        """Receives the loads of an optimizer step, summed over its micro-batches and ranks."""


class RouterArguments:
    """What a mixture passes to the constructor of its router."""

    dim: int  # channels of the residual stream
    experts: int  # number of experts
    top_k: int  # experts of a token


ROUTERS = Registry("router", caller_arguments=RouterArguments, base=Router, group="ffn.router")


def count_experts(experts: Tensor, count: int, ones: Tensor | None = None) -> Tensor:
    """Returns how often each expert occurs in `experts`, (count,), each time weighted by `ones`."""
    ones = torch.ones_like(experts) if ones is None else ones
    return experts.new_zeros(count).scatter_add(0, experts, ones)


def route_all(chosen: Tensor, weight: Tensor, experts: int) -> Routes:
    """Returns the routes of all tokens to all of their experts, chosen and weight (tokens, k)."""
    flat = chosen.flatten()
    expert, order = flat.sort(stable=True)
    rows = torch.arange(len(flat), device=flat.device)
    back = torch.empty_like(order).scatter(0, order, rows).view_as(chosen)
    groups = Groups.of(count_experts(flat, experts))
    return Routes(groups, expert, order // chosen.shape[1], weight, back)
