"""Placement attention_residuals: attention over all outputs."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

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
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_attention_residuals_attend_to_all_outputs(factor):
    made = parts("attention_residuals")
    given, x = [X], X
    for part, layer in zip(made, LAYERS, strict=True):
        given.append(factor * layer(part.norm[0](x)))
        v = torch.stack(given, -2)  # (b, t, k + 1, dim)
        keys = v / (v.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        x = ((keys @ part.query).softmax(-1)[..., None, :] @ v)[..., 0, :]
    assert_close(through(made, factor), 3 * x)


@torch.no_grad()
def test_attention_residuals_start_with_the_mean_of_all_outputs():
    made = parts("attention_residuals")
    for part in made:
        part.query.zero_()
    first = LAYERS[0](made[0].norm[0](X))
    state = made[0](made[0].start(X, 1), [LAYERS[0]], sum, UNKNOWN)
    assert_close(state[0], (X + first) / 2)
