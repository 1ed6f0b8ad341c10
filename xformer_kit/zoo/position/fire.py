"""A bias that a small network computes from the distance relative to the query's position."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.position import POSITIONS, Position, at_least_fp32
from xformer_kit.registry import above, at_least
from xformer_kit.tensors import hidden, vector
from xformer_kit.zoo.position._network import of_heads


@POSITIONS.register("fire")
class Fire(Position):
    """f(psi(distance) / psi(max(L, position))), psi(x) = ln(|c x| + 1), with a network f of one
    hidden layer, and c and L learned (Li et al., 2023, arXiv:2310.04418). `position` is the
    query's, so above L a distance is measured as a share of the tokens before the query; the length
    is unlimited.
    """

    # The last layer has no bias: the same number added to all scores of a row changes no weight.

    learned = True
    breaks = {"shift": "above L the distance is measured against the query's position"}

    parameter_info = {
        "up": hidden("width", "1"),
        # Shifts all scores of a row equally unless a hidden channel changes its sign in the row.
        "up.bias": vector("width", bias=True, zero_gradient=True),
        "down": hidden("heads", "width"),
        "c": vector("1"),
        "reach": vector("1"),
    }

    def __init__(
        self,
        heads: int,
        *,
        width: int = 32,  # hidden channels of f
        rate: float = 0.1,  # c at the start, 1 / tokens
        threshold: float = 512.0,  # L at the start, tokens
        # one f, c and L per layer; false: one per stack, called FIRE-S
        per_layer: bool = True,
    ):
        super().__init__()
        self.up = nn.Linear(1, width)
        self.down = nn.Linear(width, heads, bias=False)
        self.rate = rate
        self.threshold = threshold
        self.c = nn.Parameter(torch.full((1,), rate))
        self.reach = nn.Parameter(torch.ones(1))  # L = reach * threshold

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "channel", width=1)
        yield from above(options, rate=0, threshold=0)

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        return {"c": torch.full(shape, self.rate), "reach": torch.ones(shape)}.get(name)

    def bias(self, query, key, head):
        c, reach = at_least_fp32(self.c)[0], at_least_fp32(self.reach)[0]
        far = (c * (query.position - key.position)).abs().log1p()
        scale = torch.maximum((reach * self.threshold).abs(), query.position)
        share = (far / ((c * scale).abs().log1p() + 1e-6))[..., None]  # (b, 1, q, k, 1)
        hidden = F.linear(share, at_least_fp32(self.up.weight), at_least_fp32(self.up.bias)).relu()
        return of_heads(hidden, self.down.weight, head)
