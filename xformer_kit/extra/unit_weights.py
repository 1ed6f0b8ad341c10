"""Matrices of length 1."""

import torch
from torch import nn

from xformer_kit.extra.base import EXTRAS, Extra
from xformer_kit.model.initialise import owned_parameters, residual_names


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
    modules = dict(model.named_modules())
    dim, writes = model.dim, set(residual_names(modules.items()))
    for name, parameter, owner in owned_parameters(modules):
        if parameter.ndim < 2 or not parameter.requires_grad or not name.endswith("weight"):
            continue
        reads = parameter.shape[-1] == dim or isinstance(owner, nn.Embedding)
        axis = -2 if name in writes else -1 if reads else None
        if axis is not None:
            length = torch.linalg.vector_norm(parameter, dim=axis, keepdim=True)
            parameter.div_(length.clamp(min=torch.finfo(length.dtype).tiny))
