"""Learned tokens in front of every text."""

import torch
from torch import nn

from xformer_kit.extra import EXTRAS, Extra
from xformer_kit.registry import at_least
from xformer_kit.tensors import embedding


@EXTRAS.register("memory_tokens", also_called=("registers", "register_tokens", "num_memory_tokens"))
class MemoryTokens(Extra):
    """`count` learned tokens in front of every text of each stack, or of each document in a row, to
    which its tokens may attend as the mask allows (memory tokens: Burtsev et al., 2020,
    arXiv:2006.11527, section 2.2; registers: Darcet et al., 2023, arXiv:2309.16588, section 2.2).
    The output leaves them out. A mask counts them like the first tokens of the text; all have the
    position of its first token.
    """

    breaks = {
        "cache with documents": "a document that begins in a later call would need them there",
        "device with documents": (
            "each document in a row has tokens in front of it, and only the device has their number"
        ),
    }
    variants = [{"count": 2}]
    # A mask may hide them from all tokens of the text.
    parameter_info = {"weight": embedding("memory", "dim", zero_gradient=True)}

    def __init__(self, dim: int, *, count: int = 4):  # tokens in front of a text
        super().__init__()
        self.front_tokens = count
        self.weight = nn.Parameter(torch.empty(count, dim))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", count=1)

    def front(self):
        return self.weight
