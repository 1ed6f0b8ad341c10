"""A feed-forward network that proves the contract: it has a loss, a report and a step."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.ffn import FFN, FFNS
from xformer_kit.registry import Fault, at_least


@FFNS.register("test_router")
class Router(FFN):
    """sum_i g_i mlp_i(x) over the `chosen` experts with the highest p + bias, p = softmax(x R), g =
    p renormalised.

    The loss balance * experts * sum_i f_i P_i evens out shares of tokens f and mean probabilities P
    (Fedus et al., 2022, arXiv:2101.03961, eq. 4); after every step, the bias rises for experts
    with less than their share of tokens (Wang et al., 2024, arXiv:2408.15664, algorithm 1).
    """

    def __init__(
        self,
        dim: int,
        *,
        experts: int = 4,  # networks to choose from
        chosen: int = 2,  # experts of a token
        width: int = 16,  # channels of an expert
        balance: float = 0.01,  # factor of the balancing loss
        rate: float = 0.001,  # how far the bias moves in a step
    ):
        super().__init__()
        self.experts, self.chosen, self.balance, self.rate = experts, chosen, balance, rate
        self.gate = nn.Linear(dim, experts, bias=False)
        self.up, self.down = Stack(experts, dim, width), Stack(experts, width, dim)
        self.register_buffer("bias", torch.zeros(experts))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "expert", experts=1, chosen=1)
        if options.chosen > options.experts:
            yield (
                Fault(
                    "chosen",
                    "must be at most ffn.experts",
                    got=f"{options.chosen} and {options.experts}",
                    fix=f"Try {options.experts}.",
                )
            )

    def forward(self, x, context):
        share = self.gate(x).softmax(-1)  # (b, t, experts)
        picked = (share + self.bias).topk(self.chosen, -1).indices
        mine = torch.zeros_like(share).scatter(-1, picked, 1.0)
        gates = share * mine
        gates = gates / gates.sum(-1, keepdim=True)
        out = torch.einsum("ebtd,bte->btd", self.down(F.gelu(self.up(x[None]))), gates)
        kept = (
            torch.ones_like(share[..., :1])
            if context.tokens.real is None
            else context.tokens.real[..., None].to(share)
        )
        load, count = (mine * kept).sum((0, 1)), kept.sum().clamp(min=1)
        mean = (share * kept).sum((0, 1)) / count
        loss = self.balance * self.experts * (load / (count * self.chosen) * mean).sum()
        return out, {"loss": loss, "load": load.detach()}

    @torch.no_grad()
    def after_step(self, report):
        load = report["load"]
        self.bias += self.rate * (load.mean() - load).sign()


class Stack(nn.Module):
    """One matrix per expert: (experts or 1, b, t, i) -> (experts, b, t, o)."""

    def __init__(self, experts: int, i: int, o: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(experts, o, i))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("ebti,eoi->ebto", x.expand(len(self.weight), -1, -1, -1), self.weight)
