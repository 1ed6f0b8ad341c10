"""The state of an optimizer step."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True)
class StepState:
    """State of the current or the last optimizer step.

    A separate object, since setting an attribute of an nn.Module is slow.
    """

    # Sums over micro-batches and ranks: [nats, tokens, auxiliary loss].
    sums: Tensor = field(default_factory=lambda: torch.zeros(3))
    # Sum over ranks of `encode_signal` in tasks/process/exit_codes.py; () of 0 with one rank.
    signals: Tensor = field(default_factory=lambda: torch.zeros(()))
    # Tensors that the model's components report, summed over micro-batches and ranks.
    report: dict[str, Tensor] = field(default_factory=dict)
    # Norm of the gradient of the mean loss, before clipping.
    grad_norm: Tensor = field(default_factory=lambda: torch.zeros(()))
    # Whether the last step is complete and the next has not begun, so that it can be saved.
    complete: bool = True
    # Whether the update was skipped, as the loss or the gradient is not finite. None: it was not.
    skipped: Tensor | None = None

    nats = property(lambda self: self.sums[0])  # sum of the losses of the step's tokens, ()
    tokens = property(lambda self: self.sums[1])  # number of the step's tokens, ()
