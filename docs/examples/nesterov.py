"""An optimizer: python train.py components=[docs/examples/nesterov.py] optim=nesterov"""

import torch

from xformer_kit.optim import OPTIMIZERS


@OPTIMIZERS.register("nesterov")
class Nesterov(torch.optim.SGD):
    """w - lr (g + 0.9 m) with m <- 0.9 m + g (Sutskever et al., 2013, PMLR 28:1139)."""

    def __init__(
        self,
        params,
        *,
        lr: float = 0.05,  # peak learning rate; the schedule multiplies it
        weight_decay: float = 0.0,  # of matrices, times the weight, added to the gradient
    ):
        super().__init__(params, lr=lr, weight_decay=weight_decay, momentum=0.9, nesterov=True)
