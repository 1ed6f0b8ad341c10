"""The contract of a router, and the routes that it returns."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.ffn.grouped import Groups
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import Context, Fault, Options, Registry

Report = dict[str, Tensor]


class Routes(NamedTuple):
    """The tokens that experts compute, one row for each pair of the two, sorted by expert."""

    groups: Groups  # of the experts
    expert: Tensor  # (rows,)
    token: Tensor  # (rows,), of all tokens of the batch
    # (rows,), in fp32 or more; or (tokens, k), where `back` says which rows those are
    weight: Tensor
    back: Tensor | None = None  # (tokens, k): the rows of each token, where all have as many

    def together(self, rows: Tensor, tokens: int) -> Tensor:
        """The weighted sum of each token's rows: (rows, dim) -> (tokens, dim)."""
        weight = self.weight.to(rows.dtype)
        if self.back is not None:
            return torch.bmm(weight[:, None], rows[self.back])[
                :, 0
            ]  # (n, 1, k) (n, k, dim) -> (n, dim)
        # With `accumulate` this is the same sum every time also on CUDA, which index_add is not.
        empty = rows.new_zeros(tokens, rows.shape[-1])
        return empty.index_put((self.token,), rows * weight[:, None], accumulate=True)


class Router(nn.Module):
    """Base of all routers."""

    # Laws that the router's mathematics breaks, with the reason.
    breaks: dict[str, str] = {}

    def __init__(self, experts: int):
        super().__init__()
        self.experts = experts

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Why it cannot be composed with its block, and options without effect."""
        yield from ()

    @property
    def reports(self) -> bool:
        """Whether somebody may hear what is reported: not while a text is generated or judged."""
        return self.training or torch.is_grad_enabled()

    def forward(self, x: Tensor, tokens: Tokens) -> tuple[Routes, Report]:
        """x (b, t, dim), tokens of (b, t) -> the routes of tokens to experts, and a report: `load`,
        (experts,), how many real tokens each expert computes, and the router's own `loss`.
        """
        raise NotImplementedError

    def after_step(self, load: Tensor) -> None:
        """The loads of an optimizer step, summed over its micro-batches and ranks."""


ROUTERS = Registry("router", given=("dim", "experts", "top_k"), base=Router, group="ffn.router")


def counted(experts: Tensor, count: int, ones: Tensor | None = None) -> Tensor:
    """How often each expert is named, (count,); with `ones`, how much of that counts."""
    ones = torch.ones_like(experts) if ones is None else ones
    return torch.zeros(count, dtype=experts.dtype, device=experts.device).scatter_add(
        0, experts, ones
    )


def sent(chosen: Tensor, weight: Tensor, experts: int) -> Routes:
    """Every token to each of its experts, none dropped: chosen and weight (tokens, k)."""
    flat = chosen.flatten()
    expert, order = flat.sort(stable=True)
    back = (
        torch.empty_like(order)
        .scatter(0, order, torch.arange(len(flat), device=flat.device))
        .view_as(chosen)
    )
    return Routes(Groups.of(counted(flat, experts)), expert, order // chosen.shape[1], weight, back)
