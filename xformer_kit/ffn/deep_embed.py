"""A vector of each token that a layer's network is multiplied by."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DeepEmbed(nn.Module):
    """f(x) * e_i for token i, with a learned vector e_i for each layer, 1 at the start (DeepEmbed:
    BlinkDL, 2025, RWKV-8, https://github.com/BlinkDL/RWKV-LM; as in x-transformers, for any
    network).
    """

    no_decay = ("weight",)  # factors: decay would only shrink them

    def __init__(self, tokens: int, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(tokens, dim))

    def initial(self, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.ones(shape)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """x (b, t, dim), ids (b, t) -> (b, t, dim)."""
        return x * F.embedding(ids, self.weight)

    def extra_repr(self) -> str:
        return " x ".join(map(str, self.weight.shape))
