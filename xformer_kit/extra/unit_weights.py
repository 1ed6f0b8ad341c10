"""Matrices of length 1."""

import torch
from torch import nn

from xformer_kit.extra.base import EXTRAS, Extra
from xformer_kit.tensors import canonical, owned_parameters, parameter_table


@EXTRAS.register("unit_weights", also_called=("normalized_weights",))
class UnitWeights(Extra):
    """Matrices are kept at length 1 along the channels of the residual stream, from the start and
    after every step (nGPT: Loshchilov et al., 2024, arXiv:2410.01131, sections 2.1, 2.3.2 and
    2.4.2).
    """

    def __init__(self):
        super().__init__()
        self.axes: dict[str, int] | None = None  # of the model, see `unit_axes`

    def constrain(self, model):
        if self.axes is None:
            self.axes = unit_axes(model)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                axis = self.axes.get(canonical(name))
                if axis is not None and parameter.requires_grad:
                    length = torch.linalg.vector_norm(parameter, dim=axis, keepdim=True)
                    parameter.div_(length.clamp(min=torch.finfo(length.dtype).tiny))


def unit_axes(model: nn.Module) -> dict[str, int]:
    """Returns {name of a matrix: the axis along which its length is 1}: -1 for embeddings and
    matrices that read the residual stream, whose rows have length 1, and -2 for those that write to
    it. A matrix without stated axes reads the stream if its last axis has as many channels.
    """
    found: dict[str, int] = {}
    table = parameter_table(model)
    for name, parameter, *_ in owned_parameters(dict(model.named_modules())):
        info, shape = table[name], parameter.shape
        if info.role == "vector" or len(shape) < 2:
            continue
        channels = info.axes[-1] if info.axes else "dim" * (shape[-1] == model.dim)
        if info.writes:
            found[name] = -2
        elif channels == "dim" or (info.role == "embedding" and channels == "embed_dim"):
            found[name] = -1
    return found
