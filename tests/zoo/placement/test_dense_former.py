"""Placement dense_former: learned averages."""

import pytest
import torch
from torch.testing import assert_close

from tests.zoo.placement.placement_groups import LAYERS, X, placements, through
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import Composition, build_tiny_model


@torch.no_grad()
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_dense_former_averages_with_learned_numbers(factor):
    made = placements("dense_former")
    given, x = [X], X
    for k, (part, layer) in enumerate(zip(made, LAYERS, strict=True)):
        given.append(x + factor * layer(part.norm[0](x)))
        assert part.average.shape == (k + 2,)
        x = torch.einsum("i,ibtd->btd", part.average.flip(0), torch.stack(given))
    assert_close(through(made, factor), 3 * x)


@torch.no_grad()
def test_a_model_of_averages_starts_as_one_with_pre():
    case = Composition(tiny_config(placement="pre"), "")
    plain, averages = (
        build_tiny_model(config).eval()
        for config in (case.config, tiny_config(placement="dense_former"))
    )
    assert_close(case.hidden(averages, case.ids), case.hidden(plain, case.ids))
