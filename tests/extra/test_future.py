"""Blocks for tokens further ahead have the extras of the last layer, in whose place they are."""

import pytest
import torch
from torch.testing import assert_close

from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.tensors.tokens import Tokens


@torch.no_grad()
@pytest.mark.parametrize(
    "extra", [{"token_shift": {"tokens": 2}}, {"deep_embed": {}}, {"unet": {}}]
)
@pytest.mark.parametrize(
    "sharing",
    [{}, {"unique_layers": 1}, {"unique_layers": 1, "position": {"name": "t5", "per_layer": True}}],
)
def test_with_the_weights_of_the_last_block_they_return_what_it_returns(extra, sharing):
    case = Composition(
        tiny_config(layers=2, extra={"future_tokens": {"count": 2}} | extra, **sharing), ""
    )
    model = case.model()
    stack = model.decoder
    stack.named_blocks["extra.future_tokens.2"].load_state_dict(stack.layers[-1].state_dict())
    first, second = model.hidden(Tokens(ids=case.ids), multi_token=True)[0]
    assert_close(second, first)
