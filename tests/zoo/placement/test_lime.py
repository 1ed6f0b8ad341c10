"""Placement lime: the mix of x-transformers."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tests.zoo.placement.placement_groups import DIM, LAYERS, X, placements, through
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import build_tiny_model


@torch.no_grad()
def test_lime_reads_the_mix_of_x_transformers():
    module = pytest.importorskip("x_transformers.x_transformers").DynamicLIMe
    made = placements("lime")
    streams = [X]
    for part, layer in zip(made, LAYERS, strict=True):
        mix = X
        if len(streams) > 1:
            theirs = module(DIM, len(streams), norm=False).double()
            theirs.to_weights[0].load_state_dict(
                {k: v.flip(0) for k, v in part.route.state_dict().items()}
            )
            weights_from, theirs.to_weights = theirs.to_weights, None
            theirs.to_weights = nn.Sequential(part.before, *weights_from)
            mix = theirs(streams[-1], streams)
        streams.append(streams[-1] + layer(part.norm[0](mix)))
    assert_close(through(made), 3 * streams[-1])


def test_the_first_group_has_nothing_to_mix():
    first, *_, last = build_tiny_model(tiny_config(placement="lime", layers=3)).decoder.blocks
    assert first.placement["attn"].route is None
    assert last.placement["ffn"].route.weight.shape == (6, 36)
