"""Placement attention_residuals: attention over all outputs."""

import pytest
import torch
from placements import group
from torch.testing import assert_close

from tests.zoo.placement.placement_groups import LAYERS, X, placements, through
from xformer_kit.tensors.tokens import UNKNOWN


@torch.no_grad()
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_attention_residuals_attend_to_all_outputs(factor):
    made = placements("attention_residuals")
    given, x = [X], X
    for part, layer in zip(made, LAYERS, strict=True):
        given.append(factor * layer(part.norm[0](x)))
        v = torch.stack(given, -2)  # (b, t, k + 1, dim)
        keys = v / (v.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        x = ((keys @ part.query).softmax(-1)[..., None, :] @ v)[..., 0, :]
    assert_close(through(made, factor), 3 * x)


@torch.no_grad()
def test_attention_residuals_start_with_the_mean_of_all_outputs():
    made = placements("attention_residuals")
    for part in made:
        part.query.zero_()
    first = LAYERS[0](made[0].norm[0](X))
    state = made[0](made[0].start(X, 1), group(LAYERS[0]), UNKNOWN)
    assert_close(state[0], (X + first) / 2)
