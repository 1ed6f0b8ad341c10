"""A stack is a sequence of layers; a layer or a sublayer is replaced, or refused with a reason."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from xformer_kit import ConfigError
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import VOCAB
from xformer_kit.model.build import build_model

IDS = torch.arange(12).view(2, 6)  # two rows: a tensor of two rows can be unpacked as a pair


def model(**options):
    return build_model(tiny_config(**options), VOCAB).eval()


def test_a_stack_is_a_sequence_of_its_layers():
    decoder = model(layers=4, unique_layers=2).decoder
    assert len(decoder) == 4 and len(decoder.blocks) == 2
    assert [*decoder] == [decoder[i] for i in range(4)] == list(decoder.layers)
    assert decoder[-1] is decoder[3]
    assert decoder[0] is decoder[1] is not decoder[2]  # AABB


def test_an_assignment_to_the_lists_of_blocks_is_an_error():
    decoder = model().decoder
    for blocks in (decoder.blocks, decoder.layers):
        with pytest.raises(TypeError, match="does not support item assignment"):
            blocks[0] = decoder[1]


def test_a_layer_is_replaced_by_the_block_of_another_model():
    ours, theirs = model(), model(seed=1)
    for depth in range(len(theirs.decoder)):
        ours.decoder[depth] = copy.deepcopy(theirs.decoder[depth])
    for name, other in theirs.named_parameters():
        if ".norm." not in name and not name.startswith("decoder."):
            ours.get_parameter(name).data.copy_(other.data)
    assert_close(ours(IDS), theirs(IDS), rtol=0, atol=0)


def test_an_extra_of_a_replaced_layer_stays_that_of_the_stack():
    ours = model(extra={"deep_embed": {}})
    ours.decoder[0] = copy.deepcopy(ours.decoder[1])
    ours(IDS).sum().backward()
    assert all(p.grad is not None for p in ours.decoder.extra.parameters())


def test_a_module_that_is_no_block_of_the_stack_is_refused():
    ours = model()
    refused = {
        nn.Linear(2, 2): "layer 0: must be a block, of this model or of one with the same config;",
        ours.decoder[1]: "layer 0: the block is another layer already. Give copy.deepcopy(block)",
        model(extra={"token_shift": {}}).decoder[0]: "layer 0: must have the extras of the block",
        model(model="encoder_decoder").decoder[0]: "layer 0: must have the attentions and groups",
    }
    before = ours.decoder[0]
    for block, sentence in refused.items():
        with pytest.raises(ConfigError) as error:
            ours.decoder[0] = block
        assert error.value.messages[0].startswith(sentence)
        assert ours.decoder[0] is before


class Returns(nn.Module):
    """A linear map that returns its output, or what `result` makes of it."""

    def __init__(self, dim, result):
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        self.result = result

    def forward(self, x, tokens):
        return self.result(self.linear(x))


@torch.no_grad()
def test_any_module_of_the_contract_replaces_a_feed_forward_network():
    ours = model()
    ours.decoder[0].ffn = Returns(ours.dim, lambda x: (x, {"seen": x.sum()}))
    hidden, report = ours.hidden(IDS)
    assert "decoder.0.ffn.seen" in report and hidden.shape == (2, 6, ours.dim)
    cache = ours.cache(2, 6)
    logits = torch.cat([ours(ids, cache=cache) for ids in IDS.split(2, 1)], 1)
    assert_close(logits, ours(IDS))


def test_a_sublayer_that_cannot_be_called_is_refused():
    ours = model()
    block = ours.decoder[0]
    refused = (
        ("ffn", nn.Linear(2, 2), "ffn: a feed-forward network is called as forward(x, context)"),
        ("attn", nn.MultiheadAttention(4, 2), "attn: an attention is called as forward(x, source="),
        ("ffn", None, "ffn: is a sublayer of the block and cannot be None"),
    )
    for name, module, sentence in refused:
        with pytest.raises(ConfigError) as error:
            setattr(block, name, module)
        assert error.value.messages[0].startswith(sentence)
    block.ffn = Returns(ours.dim, lambda x: x)
    with pytest.raises(ConfigError) as error:
        ours(IDS)
    assert error.value.messages == (
        "ffn: a feed-forward network is called as forward(x, context) and returns (output, report);"
        " got Tensor. Return (output, {}).",
    )
