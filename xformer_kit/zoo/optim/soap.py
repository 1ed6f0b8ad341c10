"""SOAP: Adam in the basis of Shampoo's preconditioner."""

from typing import Any

from xformer_kit.optim import (
    OPTIMIZERS,
    Combined,
    beta_faults,
    library,
    library_faults,
    rate_faults,
)
from xformer_kit.registry import at_least

LIBRARY = "pytorch_optimizer"


@OPTIMIZERS.register("soap", similar=("shampoo",))
class SOAP(Combined):
    """AdamW in the eigenvectors of the means of G G^T and G^T G of each matrix (Vyas et al., 2024,
    arXiv:2409.11321, algorithm 3).

    As the library pytorch-optimizer computes it: the eigenvectors are computed anew every
    `frequency` steps. Sides above `max_side` keep their own basis,
    and the first step only computes the means.
    """

    trains_parts = False  # products of whole matrices

    def __init__(
        self,
        params: list[dict[str, Any]],
        *,
        lr: float = 3e-3,  # peak learning rate; the schedule multiplies it
        weight_decay: float = 0.1,  # factor lr * weight_decay of a matrix is subtracted per step
        betas: tuple[float, float] = (0.95, 0.95),  # decay rates of the two moment estimates
        eps: float = 1e-8,  # added to the root of the mean square
        frequency: int = 10,  # steps between two computations of the eigenvectors
        max_side: int = 10000,  # channels of the longest side with eigenvectors
    ):
        optimizer = library(LIBRARY).SOAP(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            precondition_frequency=frequency,
            max_precondition_dim=max_side,
        )
        super().__init__([optimizer])

    @classmethod
    def check(cls, options, context):
        yield from library_faults(LIBRARY)
        yield from rate_faults(options, "Try 3e-3.")
        yield from beta_faults(options, (0.95, 0.95))
        yield from at_least(options, "step", frequency=1)
        yield from at_least(options, "channel", max_side=1)
