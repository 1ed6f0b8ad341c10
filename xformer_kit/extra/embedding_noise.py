"""Noise on the embeddings in training."""

import torch

from xformer_kit.extra.base import EXTRAS, Extra
from xformer_kit.registry import at_least


@EXTRAS.register("embedding_noise", also_called=("neftune",))
class EmbeddingNoise(Extra):
    """In training, alpha / sqrt(t dim) * u is added to the embeddings of a row with t real tokens,
    u uniform in [-1, 1), drawn for each number (NEFTune: Jain et al., 2023, arXiv:2310.05914,
    algorithm 1).
    """

    variants = [{"alpha": 15.0}]

    def __init__(
        self,
        *,
        alpha: float = 5.0,  # the mean length of a row's noise is alpha / sqrt(3)
    ):
        super().__init__()
        self.alpha = alpha

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, alpha=0)

    def embed(self, x, layer):
        if not self.training:
            return x
        real = layer.tokens.real
        count = x.shape[1] if real is None else real.sum(1)[:, None, None].clamp(min=1).to(x.dtype)
        return x + (2 * torch.rand_like(x) - 1) * (self.alpha / (count * x.shape[2]) ** 0.5)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"
