"""How well does a model predict a text? Exact figures over a whole split and over all ranks."""

import math

import torch
from torch import Tensor
from torchmetrics import Metric


class Likelihood(Metric):
    """Cross-entropy per token, perplexity and bits per byte, from sums; every token counts the same.

    loss = nats / tokens; perplexity = exp(loss); bits per byte = loss / ln 2 / (bytes per token).
    bytes_per_token: UTF-8 bytes of the split per token of it.
    """

    full_state_update = False
    higher_is_better = False
    is_differentiable = False
    nats: Tensor
    tokens: Tensor

    def __init__(self, bytes_per_token: float, dtype: torch.dtype = torch.float64):
        super().__init__()
        self.bytes_per_token = bytes_per_token
        self.add_state("nats", torch.zeros((), dtype=dtype), dist_reduce_fx="sum")
        self.add_state("tokens", torch.zeros((), dtype=dtype), dist_reduce_fx="sum")

    def update(self, nats: Tensor, tokens: Tensor | int) -> None:
        """nats: the sum of cross-entropies of a batch; tokens: how many."""
        self.nats += nats
        self.tokens += tokens

    def compute(self) -> dict[str, float]:
        loss = (self.nats / self.tokens).item()
        return {
            "loss": loss,
            "perplexity": math.exp(loss) if loss < 700 else math.inf,
            "bits_per_byte": loss / math.log(2) / self.bytes_per_token,
        }
