"""A learned vector per token, by which the output of each feed-forward network is multiplied."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.extra.base import EXTRAS, Extra, first_layers
from xformer_kit.registry import Fault
from xformer_kit.tensors import embedding


class TokenFactors(nn.Module):
    """x * weight[ids]."""

    # Factors around 1, which should not decay to 0.
    parameter_info = {"weight": embedding("vocab", "dim", decays=False)}

    def __init__(self, vocab_size: int, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(vocab_size, dim))

    def initial(self, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.ones(shape)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """x (b, t, dim), ids (b, t) -> (b, t, dim)."""
        return x * F.embedding(ids, self.weight)

    def extra_repr(self) -> str:
        return " x ".join(map(str, self.weight.shape))


class LayerFactors(Extra):
    """The vectors of one layer, (vocab_size, dim) for each of its feed-forward networks."""

    def __init__(self, names: Sequence[str], vocab_size: int, dim: int):
        super().__init__()
        self.table = nn.ModuleDict({name: TokenFactors(vocab_size, dim) for name in names})

    def wrap(self, name, branch, layer):
        if name not in self.table:
            return branch
        return lambda x: self.table[name](branch(x), layer.tokens.ids)


@EXTRAS.register("deep_embed")
class DeepEmbed(Extra):
    """f(x) * e_i for token i, with a learned vector e_i for each feed-forward network of each
    layer, 1 at the start (DeepEmbed: BlinkDL, 2025, RWKV-8, https://github.com/BlinkDL/RWKV-LM; as
    in x-transformers, for any network).
    """

    layer_class = LayerFactors

    def __init__(
        self,
        dim: int,
        vocab_size: int,
        sublayers: dict[int, dict[str, str]],
        block_index: tuple[int, ...],
    ):
        super().__init__()
        for depth in first_layers(block_index):
            if names := [name for name, kind in sublayers[depth].items() if kind == "ffn"]:
                self.layers[str(depth)] = LayerFactors(names, vocab_size, dim)

    @classmethod
    def cannot(cls, options, context):
        blocks = [block for stack in context.stacks for block in stack.blocks]
        if all(sub.kind != "ffn" for block in blocks for sub in block.sublayers):
            rule = "multiplies feed-forward networks, and no layer has one"
            yield Fault("", rule, fix="Leave it out.")
