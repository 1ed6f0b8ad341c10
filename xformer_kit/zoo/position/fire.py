"""A bias that is a network of the distance relative to the position."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.position import POSITIONS, Position, exact
from xformer_kit.registry import above, at_least
from xformer_kit.zoo.position._network import of_heads


@POSITIONS.register("fire")
class Fire(Position):
    """f(psi(distance) / psi(max(L, position))), psi(x) = ln(|c x| + 1), with a network f of one
    hidden layer, and c and L learned (Li et al., 2023, arXiv:2310.04418). `position` is the
    query's, so that positions beyond L are seen as shares of what has been read; there is no
    longest text.
    """

    # f ends without a bias: the same number on every score of a row changes no weight.

    no_gradient = (
        "up.bias",
    )  # it shifts all scores of a row alike while no hidden channel changes its sign within the row
    learned = True
    breaks = {"shift": "beyond L the distance is measured against the query's position"}

    def __init__(
        self,
        heads: int,
        *,
        width: int = 32,  # hidden channels of f
        rate: float = 0.1,  # c at the start, 1 / tokens
        threshold: float = 512.0,  # L at the start, tokens
        # f, c and L for each layer; false: one for the stack, called FIRE-S
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
        c = exact(self.c)[0]
        far = (c * (query.position - key.position)).abs().log1p()
        whole = (
            (c * torch.maximum((exact(self.reach)[0] * self.threshold).abs(), query.position))
            .abs()
            .log1p()
        )
        share = (far / (whole + 1e-6))[..., None]  # (b, 1, q, k, 1)
        hidden = F.linear(share, exact(self.up.weight), exact(self.up.bias)).relu()
        return of_heads(hidden, self.down.weight, head)
