"""Values with an embedding of the token."""

from collections.abc import Mapping

import torch
from torch import nn

from xformer_kit.extra import EXTRAS, Extra, first_layers
from xformer_kit.registry import Fault, at_least, at_most
from xformer_kit.tensors import embedding, hidden


class ValueEmbeddingsOfLayer(Extra):
    """The embeddings and the gate of one layer."""

    parameter_info = {
        "table": embedding("vocab", "kv_heads*v_head_dim"),
        "gate": hidden("kv_heads", "channels"),
    }

    def __init__(self, vocab_size: int, heads: int, head_dim: int, channels: int):
        super().__init__()
        self.table = nn.Embedding(vocab_size, heads * head_dim)
        self.gate = nn.Linear(channels, heads, bias=False)

    def values(self, v, x, layer):
        gate = 3 * torch.sigmoid(self.gate(x[..., : self.gate.in_features]))  # (b, t, h)
        added = self.table(layer.tokens.ids).unflatten(-1, (v.shape[1], -1))  # (b, t, h, d)
        return v + (gate[..., None] * added).transpose(1, 2)


def _attends(sublayers: Mapping[str, str]) -> bool:
    """Whether a layer, {name: kind} of its sublayers, has an attention to its own tokens."""
    return any(kind == "attn" and not name.startswith("cross") for name, kind in sublayers.items())


@EXTRAS.register("value_embeddings")
class ValueEmbeddings(Extra):
    """v + 3 sigmoid(W x[:channels]) E[token] in every `every`-th layer, the last included, with a
    gate for each key head, for values v (b, h, t, d) made from x (b, t, dim) (nanochat: Karpathy,
    2026, https://github.com/karpathy/nanochat). Not for values of a source.
    """

    layer_class = ValueEmbeddingsOfLayer
    variants = [{"every": 1, "channels": 5}]

    def __init__(
        self,
        vocab_size: int,
        sublayers: dict[int, dict[str, str]],
        block_index: tuple[int, ...],
        kv_heads: int,
        v_head_dim: int,
        *,
        every: int = 2,  # layers
        channels: int = 12,  # first channels of the attention's input, which the gate reads
    ):
        super().__init__()
        last = len(block_index) - 1
        attending = [depth for depth in first_layers(block_index) if _attends(sublayers[depth])]
        depths = [depth for depth in attending if (last - depth) % every == 0]
        given = vocab_size, kv_heads, v_head_dim, channels
        self.layers = nn.ModuleDict(
            {str(depth): ValueEmbeddingsOfLayer(*given) for depth in depths}
        )

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "layer", every=1)
        yield from at_least(options, "channel", channels=1)
        yield from at_most(options, "channels", channels=context.dim or options.channels)

    @classmethod
    def cannot(cls, options, context):
        for stack in context.stacks:
            found = {
                (sub.context.attn.kv_heads, sub.context.attn.v_head_dim)
                for block in stack.blocks
                for sub in block.sublayers
                if sub.kind == "attn" and not sub.cross
            }
            if len(found) > 1:
                rule = "needs attentions with equally many key heads and channels in all layers"
                yield Fault("", rule, fix="Leave it out.")
                return

    def layer_module(self, depth, sublayers):
        return dict(self.layers.items()).get(str(depth))
