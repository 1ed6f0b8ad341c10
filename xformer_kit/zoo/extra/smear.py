"""The embedding of the token before, added to that of each token."""

import torch
from torch import nn

from xformer_kit.extra import EXTRAS, Extra, previous, previous_places
from xformer_kit.registry import at_least, at_most
from xformer_kit.tensors import KeyValueCache, hidden, vector


@EXTRAS.register("smear")
class Smear(Extra):
    """x_t + factor * sigmoid(w^T x_t[:channels]) * x_{t-1}, for the embeddings x (b, t, dim) and
    the token before t in its document; factor is learned and starts at 0 (nanochat: Karpathy, 2026,
    https://github.com/karpathy/nanochat).
    """

    parameter_info = {"gate": hidden("1", "channels"), "factor": vector("1")}

    def __init__(self, dim: int, *, channels: int = 24):  # first channels, which the gate reads
        super().__init__()
        self.dim = dim
        self.gate = nn.Linear(channels, 1, bias=False)
        self.factor = nn.Parameter(torch.zeros(1))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "channel", channels=1)
        yield from at_most(options, "channels", channels=context.dim or options.channels)

    def embed(self, x, layer):
        whole = x if layer.cache is None else layer.cache["x"].append(x[:, None])[0][:, 0]
        before = previous(whole, 1, x.shape[1], previous_places(layer.key, x.shape[1], 1))
        gate = torch.sigmoid(self.gate(x[..., : self.gate.in_features]))
        return x + self.factor * gate * before

    def caches(self, rows, length, like):
        shape = rows, 1, length, self.dim
        return {"x": KeyValueCache(shape, dtype=like.dtype, device=like.device)}
