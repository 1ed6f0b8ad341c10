"""An initialisation: python train.py components=[docs/examples/orthogonal.py] init=orthogonal"""

import torch
from torch import nn

from xformer_kit.model.init_distributions import INITS, Init


@INITS.register("orthogonal")
class Orthogonal(Init):
    """Matrices with orthogonal rows or columns of length 1 (Saxe et al., 2014, arXiv:1312.6120,
    section 3); embeddings are drawn from N(0, embedding^2).
    """

    def __init__(self, *, embedding: float = 0.02):  # standard deviation of embeddings
        super().__init__(depth_scaled=True, embedding=embedding)

    def spread(self, outputs, inputs):
        return max(outputs, inputs) ** -0.5

    def draw(self, matrix, generator):
        if matrix.looked_up:
            return super().draw(matrix, generator)
        drawn = torch.empty(matrix.shape)
        for one in drawn.view(-1, *matrix.shape[-2:]):
            nn.init.orthogonal_(one, generator=generator)
        return drawn * (self.std(matrix) / self.spread(*matrix.shape[-2:]))
