"""The loss that balances the loads of experts."""

import torch
from torch import Tensor, nn


class BalanceLoss(nn.Module):
    """factor * experts * sum_i f_i P_i, with f_i the share of choices of expert i, which has no
    gradient, and P_i its mean share of scores (Switch: Fedus et al., 2022, arXiv:2101.03961, eq. 4
    to 6). It is `factor` if all f_i are equal.

    f_i is that of the last optimizer step, over all its micro-batches and ranks, so that the loss
    is a mean over tokens: the gradients of micro-batches and ranks add up to that of the whole
    batch, and no rank waits for another in the forward pass. Loads over the whole batch let experts
    specialise, where those of each micro-batch make it use all of them evenly (Qiu et al., 2025,
    arXiv:2501.11873).
    """

    # Papers: f_i and P_i are of the same tokens, those of a micro-batch (Switch) or of a step so
    # far (Qiu et al.), so that gradients depend on how a batch is split.   Here: f_i is known
    # before the step. It costs `experts` numbers per layer, and no time.

    # Loads of the last step divided by their mean; 0: not known.
    relative_load: Tensor
    training_buffers = ("relative_load",)

    def __init__(self, experts: int, factor: float):
        super().__init__()
        self.factor = factor
        self.register_buffer("relative_load", torch.zeros(experts))

    def forward(self, share: Tensor, counts: Tensor, load: Tensor) -> Tensor:
        """share (tokens, experts): scores that sum to 1; counts (tokens,): 0 on padding, else 1;
        load (experts,): the numbers of choices, used as long as no step has been reported.
        """
        mean = (share * counts[:, None]).sum(0) / counts.sum().clamp(min=1)
        known = self.relative_load.to(mean)
        relative = torch.where(known.sum() > 0, known, relative_loads(load, mean.dtype))
        return self.factor * (relative * mean).sum()

    @torch.no_grad()
    def before_steps(self) -> None:
        """Assumes even loads in the first step, which micro-batches and ranks have in common."""
        known = self.relative_load.sum() > 0
        self.relative_load.copy_(torch.where(known, self.relative_load, 1.0))

    @torch.no_grad()
    def after_step(self, load: Tensor) -> None:
        """Receives the loads of a step; those of a step that was skipped are 0 and change
        nothing.
        """
        dtype = torch.promote_types(self.relative_load.dtype, torch.float32)
        relative = relative_loads(load, dtype).to(self.relative_load)
        self.relative_load.copy_(torch.where(load.sum() > 0, relative, self.relative_load))

    def extra_repr(self) -> str:
        return f"{self.factor:g}"


def relative_loads(load: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns loads (experts,) divided by their mean; 0 if all are 0."""
    load = load.to(dtype)
    return load * len(load) / load.sum().clamp(min=1)
