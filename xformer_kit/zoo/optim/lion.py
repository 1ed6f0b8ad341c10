"""An optimizer: python train.py components=[docs/examples/lion.py] optim=lion optim.lr=3e-4"""

import torch

from xformer_kit.optim import OPTIMIZERS, parameter_groups
from xformer_kit.registry import above, at_least


@OPTIMIZERS.register("lion")
class Lion(torch.optim.Optimizer):
    """w <- (1 - lr * weight_decay) w - lr sign(b_1 m + (1 - b_1) g), then m <- b_2 m + (1 - b_2) g
    (Chen et al., 2023, arXiv:2302.06675, algorithm 2).
    """

    def __init__(
        self,
        model,
        *,
        lr: float = 3e-4,  # peak learning rate; the schedule multiplies it
        weight_decay: float = 0.3,  # factor lr * weight_decay of a matrix is subtracted per step
        betas: tuple[float, float] = (0.9, 0.99),  # shares of the old mean in the step, and kept
    ):
        super().__init__(parameter_groups(model, weight_decay), {"lr": lr, "betas": betas})

    @classmethod
    def check(cls, options, context):
        yield from above(options, lr=0)
        yield from at_least(options, weight_decay=0)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for p in filter(lambda p: p.grad is not None, group["params"]):
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * mean.lerp(p.grad, 1 - group["betas"][0]).sign())
                mean.lerp_(p.grad, 1 - group["betas"][1])
        return loss
