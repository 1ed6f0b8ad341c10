"""Feed-forward networks and experts that read earlier tokens, each with a cache of its own."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from xformer_kit.ffn import FFN, FFNS, MLP
from xformer_kit.ffn.moe import EXPERTS
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.tensors import hidden
from xformer_kit.tensors.cache import StateCache
from xformer_kit.tensors.short_conv import ShortConvolution
from xformer_kit.tensors.tokens import document_segments


def mixed(convolution, x, context):
    """The convolution of x over real tokens of a document; keeps the end of x in the cache."""
    past = x.new_zeros(len(x), convolution.width - 1, x.shape[-1])
    if context.cache is not None:
        (past,) = context.cache.tensors
    segment = document_segments(context.tokens, context.key)
    out, past = convolution(x, past, context.tokens.real, segment)
    if context.cache is not None:
        context.cache.append(past)
    return out


def empty_cache(convolution, rows):
    return StateCache.of(convolution, (rows, convolution.width - 1, len(convolution.weight)))


class ChannelMix(FFN):
    """relu(x K)^2 V, with the channels x mixed with those of the token before (RWKV: Peng et al.,
    2023, arXiv:2305.13048, eq. 18).
    """

    parameter_info = {"up": hidden("width", "dim"), "down": hidden("dim", "width", writes=True)}

    def __init__(self, dim: int, *, width: int = 8):
        super().__init__()
        self.shift = ShortConvolution(dim, 2)
        self.up, self.down = nn.Linear(dim, width), nn.Linear(width, dim)

    def forward(self, x, context):
        return self.down(self.up(mixed(self.shift, x, context)).relu().square()), {}

    def cache(self, rows, length):
        return empty_cache(self.shift, rows)


class MixingExpert(MLP):
    """An mlp whose input is mixed with the tokens before."""

    def __init__(
        self,
        dim: int,
        norm=nn.RMSNorm,
        linear=nn.Linear,
        *,
        width: int | None = None,
        expand: float | None = None,
        multiple_of: int | None = None,
    ):
        super().__init__(dim, norm, linear, width=width, expand=expand, multiple_of=multiple_of)
        self.shift = ShortConvolution(dim, 3)

    def mix_tokens(self, x, context):
        return x + mixed(self.shift, x, context)

    def cache(self, rows, length):
        return empty_cache(self.shift, rows)


@pytest.fixture(autouse=True)
def registered():
    FFNS.register("channel_mix")(ChannelMix)
    EXPERTS.register("mixing")(MixingExpert)
    yield
    FFNS.forget(__name__)
    EXPERTS.forget(__name__)


@pytest.mark.parametrize(
    "changes",
    [
        {"ffn": "channel_mix", "mask": "sliding_window"},
        {"ffn": {"name": "moe", "expert": {"name": "mixing"}, "shared": 1}},
        pytest.param(
            {"ffn": {"name": "moe", "expert": {"name": "mixing"}}, "model": "encoder_decoder"},
            marks=pytest.mark.extended,
        ),
    ],
    ids=["network", "experts", "encoder-decoder"],
)
def test_laws_of_sequences_and_generation_are_kept(changes):
    config = tiny_config(**changes)
    assert not faults(config)
    for name in ("causality", "documents", "padding", "batch", "cache", "cache with padding"):
        LAWS[name](config)
    for name in ("select and rewind", "greedy", "device", "one graph", "gradients"):
        LAWS[name](config)


@torch.no_grad()
def test_one_expert_is_the_network_that_mixes():
    """Its router has no choice, so that the mixture of one is the expert."""
    mixture = {"name": "moe", "experts": 1, "top_k": 1, "expert": {"name": "mixing"}, "width": 8}
    case = Composition(tiny_config(ffn=mixture, decoder={"layout": ["ffn"]}), "")
    model = case.model()
    found = case.hidden(model)
    for block in model.decoder.blocks:
        one = MixingExpert(block.ffn.router.weight.shape[1], width=8).double()
        weights = block.ffn.experts.state_dict()
        one.load_state_dict({k: v[0] if k != "shift.weight" else v for k, v in weights.items()})
        block.ffn = one
    assert_close(case.hidden(model), found)
