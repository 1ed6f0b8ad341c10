"""Adafactor: a mean square for each row and each column in place of one for each weight."""

from typing import Any

import torch

from xformer_kit.optim import OPTIMIZERS, rate_faults
from xformer_kit.registry import Fault, above


@OPTIMIZERS.register("adafactor", also_called=("torch.optim.Adafactor",))
class Adafactor(torch.optim.Adafactor):
    """w - a u with a = max(1e-3, RMS(w)) min(lr, 1 / sqrt(t)) and u = g / sqrt(v), divided by its
    RMS if that is above `clip`; v of a matrix is the product of the means of g^2 over rows and
    columns (Shazeer and Stern, 2018, arXiv:1804.04235, algorithm 4), as torch computes it.
    """

    trains_parts = False  # means over rows and columns

    def __init__(
        self,
        params: list[dict[str, Any]],
        *,
        lr: float = 1e-2,  # peak relative rate; the schedule multiplies it
        weight_decay: float = 0.0,  # factor lr * weight_decay of a matrix is subtracted per step
        beta2_decay: float = -0.8,  # the new share of the mean squares in step t is t^beta2_decay
        clip: float = 1.0,  # largest root mean square of a step before the rate
    ):
        super().__init__(params, lr=lr, weight_decay=weight_decay, beta2_decay=beta2_decay, d=clip)

    @classmethod
    def check(cls, options, context):
        yield from rate_faults(options, "Try 1e-2.")
        yield from above(options, "Try 1.", clip=0)
        if options.beta2_decay > 0:
            yield Fault(
                "beta2_decay", "must be at most 0", got=options.beta2_decay, fix="Try -0.8."
            )
