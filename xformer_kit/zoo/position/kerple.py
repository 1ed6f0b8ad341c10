"""A bias that decreases with the logarithm or a power of the distance."""

from typing import Literal

import torch
from torch import Tensor, nn

from xformer_kit.position import POSITIONS, Position, at_least_fp32
from xformer_kit.tensors import vector


@POSITIONS.register("kerple")
class Kerple(Position):
    """-r1 ln(1 + r2 distance) (log), or -r1 distance^r2 (power), with r1, r2 > 0 learned for each
    head, and r2 <= 2 in the latter (Chi et al., 2022, arXiv:2205.09921, section 3.3). The length is
    unlimited.
    """

    # Authors' code: r1 and r2 are parameters that are clipped to their ranges.   Here: exp and 2
    # sigmoid of parameters, whose gradients never vanish. The starts are the same, uniform in (0,
    # 2) and (0, 1).

    variants = [{"kernel": "power"}]
    learned = True

    parameter_info = {"r1": vector("heads"), "r2": vector("heads")}

    def __init__(
        self,
        heads: int,
        *,
        kernel: Literal["log", "power"] = "log",  # how the bias decreases with the distance
        per_layer: bool = False,  # one r1 and r2 per layer, instead of one per stack
    ):
        super().__init__()
        self.power = kernel == "power"
        self.r1 = nn.Parameter(torch.zeros(heads))
        self.r2 = nn.Parameter(torch.zeros(heads))

    def initial(self, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        drawn = torch.rand(shape, generator=generator).clamp(0.01, 0.99)
        if self.power and name == "r2":
            return drawn.logit()  # 2 sigmoid of it: uniform in (0, 2)
        return (drawn if self.power or name == "r2" else 2 * drawn).log()

    def bias(self, query, key, head):
        distance = (query.position - key.position).abs()
        r1, r2 = at_least_fp32(self.r1)[head].exp(), at_least_fp32(self.r2)[head]
        if not self.power:
            return -r1 * (r2.exp() * distance).log1p()
        # 0^r2 has no gradient, so it is left out of the power.
        raised = distance.clamp(min=1) ** (2 * r2.sigmoid())
        return -r1 * raised * (distance > 0)
