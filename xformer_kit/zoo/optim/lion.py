"""Lion: steps of one size in the direction of a sign."""

from typing import Any

import torch

from xformer_kit.optim import OPTIMIZERS, beta_faults, per_input, rate_faults, skipped


@OPTIMIZERS.register("lion")
class Lion(torch.optim.Optimizer):
    """w <- (1 - lr * weight_decay) w - lr sign(b_1 m + (1 - b_1) g), then m <- b_2 m + (1 - b_2) g
    (Chen et al., 2023, arXiv:2302.06675, algorithm 2).
    """

    width_divisor = staticmethod(per_input)

    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: list[dict[str, Any]],
        *,
        lr: float = 3e-4,  # peak learning rate; the schedule multiplies it
        weight_decay: float = 0.3,  # factor lr * weight_decay of a matrix is subtracted per step
        betas: tuple[float, float] = (0.9, 0.99),  # shares of the old mean in the step, and kept
    ):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "betas": betas})

    @classmethod
    def check(cls, options, context):
        yield from rate_faults(options, "Try 3e-4.")
        yield from beta_faults(options, (0.9, 0.99))

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        weights = [p for p in group["params"] if p.grad is not None]
        if not weights:
            return
        means = [self.state[p].setdefault("mean", torch.zeros_like(p)) for p in weights]
        grads, rate, found = [p.grad for p in weights], group["lr"], skipped(self)
        if found is not None:
            pairs = zip(means, grads, strict=True)
            grads = [torch.where(found > 0, mean, grad) for mean, grad in pairs]
            rate = rate * (1 - found)
        kept, own = group["betas"][1], group["betas"][0]
        step = torch._foreach_lerp(means, grads, 1 - own)
        torch._foreach_sign_(step)
        torch._foreach_mul_(step, rate)
        torch._foreach_mul_(weights, 1 - rate * group["weight_decay"])
        torch._foreach_sub_(weights, step)
        torch._foreach_lerp_(means, grads, 1 - kept)
