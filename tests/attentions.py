"""Attentions of small models with random weights in float64: their inputs and outputs."""

import torch
from torch import Tensor, nn

from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import LENGTH, VOCAB, Composition, randomise
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model

IDS = torch.arange(2 * LENGTH).view(2, LENGTH) % VOCAB
DRAWN = Composition(tiny_config(), "").ids
SHORT = DRAWN[:2, :8]
HIDDEN = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)  # later keys
HEADS, WIDE = 6, 10  # heads and channels of a head in small models


def model_of(attn: str | dict, model: str = "decoder", **changes) -> Model:
    """Returns a model in evaluation mode with random weights in float64."""
    built = build_model(tiny_config(model, attn=attn, **changes), VOCAB)
    randomise(built)
    return built.double().eval()


@torch.no_grad()
def read(model: Model, ids: Tensor, depth: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    """Returns the attention of a layer, its input and its output for these tokens."""
    tensors = []
    attention = model.stack.blocks[depth].attn
    hook = attention.register_forward_hook(lambda _, args, out: tensors.extend((args[0], out)))
    model(ids)
    hook.remove()
    return attention, *tensors


def layer(depth: int = 1, position: str = "none", mask: str = "causal", **attn):
    """Returns an attention of a random decoder, its input and its output."""
    return read(model_of(attn, position=position, mask=mask), IDS, depth)


def short_layer(attn: str | dict, model: str = "decoder", **changes):
    """Returns the first attention of a random model, its input and its output for 8 tokens."""
    return read(model_of(attn, model, position="none", **changes), SHORT)


def encoder_layer(attn: str | dict):
    """Returns the first attention of a random encoder, its input and its output for 12 tokens."""
    return read(model_of(attn, "encoder", position="none"), DRAWN[:, :12])


def past(n: int, masked: bool) -> range:
    """Returns the tokens of a short text that token n attends to."""
    return range(n + 1) if masked else range(SHORT.shape[1])


def heads(attn: nn.Module, x: Tensor, names: str, count: int = HEADS):
    """Yields the named projections of x, split into heads: (b, t, h, d)."""
    return ((x @ getattr(attn, name).weight.t()).unflatten(-1, (count, -1)) for name in names)


def weights(q: Tensor, k: Tensor, scale: Tensor | float) -> Tensor:
    """Returns the causal attention weights of one head."""
    return (q @ k.transpose(-1, -2) * scale).masked_fill(HIDDEN, -torch.inf).softmax(-1)
