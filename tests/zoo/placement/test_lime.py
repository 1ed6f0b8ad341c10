"""Placement lime: the mix of x-transformers."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from xformer_kit.laws import tiny
from xformer_kit.laws.case import made as make
from xformer_kit.model.tokens import UNKNOWN
from xformer_kit.placement import PLACEMENTS

DIM, GROUPS = 7, 4

DRAW = torch.Generator().manual_seed(3)

X = torch.randn(2, 3, DIM, generator=DRAW, dtype=torch.float64)

LAYERS = [nn.Linear(DIM, DIM).double() for _ in range(GROUPS)]


def parts(name):
    """A placement for each of a stack's groups, every parameter drawn."""
    given = {"dim": DIM, "norm": lambda: nn.LayerNorm(DIM), "parallel": 1}
    made = [PLACEMENTS.create({"name": name}, latest=at, **given).double() for at in range(GROUPS)]
    for part in made:
        for parameter in part.parameters():
            nn.init.normal_(parameter, generator=DRAW)
    return made


def through(made, factor=1.0):
    state = type(made[0]).start(X, type(made[0]).streams({}))
    for part, layer in zip(made, LAYERS, strict=True):
        state = part(state, [layer], lambda outputs: factor * sum(outputs), UNKNOWN)
    return made[0].finish(state, lambda x: 3 * x)


@torch.no_grad()
def test_lime_reads_the_mix_of_x_transformers():
    module = pytest.importorskip("x_transformers.x_transformers").DynamicLIMe
    made = parts("lime")
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
    first, *_, last = make(tiny(placement="lime", layers=3)).decoder.blocks
    assert first.placement["attn"].route is None
    assert last.placement["ffn"].route.weight.shape == (6, 36)
