"""AdamW whose moments take a byte each."""

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

LIBRARY = "torchao"


@OPTIMIZERS.register("adamw_8bit", also_called=("adamw8bit", "adam8bit"))
class AdamW8bit(Combined):
    """AdamW with both moments in 8 bits, in blocks of 256 numbers with one factor each (Dettmers et
    al., 2022, arXiv:2110.02861).

    As the library torchao computes it: tensors of fewer than 4,096 numbers keep fp32, and the step
    is compiled.
    """

    width_divisor = staticmethod(per_input)

    def __init__(
        self,
        params: list[dict[str, Any]],
        *,
        lr: float = 2e-3,  # peak learning rate; the schedule multiplies it
        weight_decay: float = 0.1,  # factor lr * weight_decay of a matrix is subtracted per step
        betas: tuple[float, float] = (0.9, 0.99),  # decay rates of the two moment estimates
        eps: float = 1e-8,  # added to the root of the mean square
    ):
        optimizer = library("torchao.optim").AdamW8bit(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay
        )
        super().__init__([optimizer])

    @classmethod
    def check(cls, options, context):
        yield from library_faults(LIBRARY)
        yield from rate_faults(options)
        yield from beta_faults(options, (0.9, 0.99))
