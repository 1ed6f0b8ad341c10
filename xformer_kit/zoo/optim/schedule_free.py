"""Schedule-free AdamW: an average of the steps in place of a decay of the rate."""

from typing import Any

from xformer_kit.optim import (
    OPTIMIZERS,
    Combined,
    beta_faults,
    library,
    library_faults,
    per_input,
    rate_faults,
)
from xformer_kit.registry import at_least

LIBRARY = "schedulefree"


@OPTIMIZERS.register("schedule_free", also_called=("schedulefree", "adamw_schedule_free"))
class ScheduleFree(Combined):
    """AdamW with a mean of its steps in place of a decay of the rate (Defazio et al., 2024,
    arXiv:2405.15682, algorithm 1).

    Gradients are computed at y = b_1 x + (1 - b_1) z, steps are taken from z, and x is the mean of
    all z with the squares of their rates as weights, as in the library schedulefree. Validation,
    checkpoints and the finished model use x. Choose schedule=constant.
    """

    width_divisor = staticmethod(per_input)

    def __init__(
        self,
        params: list[dict[str, Any]],
        *,
        lr: float = 2.5e-3,  # learning rate; the schedule multiplies it
        weight_decay: float = 0.1,  # factor lr * weight_decay of a matrix is subtracted per step
        betas: tuple[float, float] = (0.9, 0.99),  # the share b_1 of x in y, and Adam's second rate
        eps: float = 1e-8,  # added to the root of the mean square
        power: float = 0.0,  # of the step's number in its weight in the mean
    ):
        self.inner = library(LIBRARY).AdamWScheduleFree(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, r=power
        )
        super().__init__([self.inner])
        self.train()

    @classmethod
    def check(cls, options, context):
        yield from library_faults(LIBRARY)
        yield from rate_faults(options, "Try 2.5e-3.")
        yield from beta_faults(options, (0.9, 0.99))
        yield from at_least(options, power=0)

    def train(self) -> None:
        """Sets the weights to y, at which gradients are computed."""
        self.inner.train()

    def eval(self) -> None:
        """Sets the weights to their mean x."""
        self.inner.eval()
