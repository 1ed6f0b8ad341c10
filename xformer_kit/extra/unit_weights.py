"""Matrices of length 1."""

import torch
from torch import nn

from xformer_kit.extra.base import EXTRAS, Extra
from xformer_kit.tensors import owned_parameters, parameter_table


@EXTRAS.register("unit_weights", also_called=("normalized_weights",))
class UnitWeights(Extra):
    """Matrices are kept at length 1 along the channels of the residual stream, from the start and
    after every step (nGPT: Loshchilov et al., 2024, arXiv:2410.01131, sections 2.1, 2.3.2 and
    2.4.2).
    """

    def __init__(self):
        super().__init__()

    def constrain(self, model):
        unit_weights(model)


@torch.no_grad()
def unit_weights(model: nn.Module) -> None:
    """Scales matrices to length 1 along the channels of the residual stream (Loshchilov et al.,
    2024, arXiv:2410.01131, sections 2.1, 2.3.2 and 2.4.2): each row of an embedding and of a matrix
    that reads the stream, each column of a matrix that writes to it. Other parameters, and those
    that are frozen, do not change.
    """
    table = parameter_table(model)
    for own in owned_parameters(dict(model.named_modules())):
        info, parameter = table[own.name], own.parameter
        if info.role == "vector" or not info.axes or not parameter.requires_grad:
            continue
        reads = info.axes[-1] == "dim" or (
            info.role == "embedding" and info.axes[-1] == "embed_dim"
        )
        axis = -2 if info.writes else -1 if reads else None
        if axis is not None:
            length = torch.linalg.vector_norm(parameter, dim=axis, keepdim=True)
            parameter.div_(length.clamp(min=torch.finfo(length.dtype).tiny))
