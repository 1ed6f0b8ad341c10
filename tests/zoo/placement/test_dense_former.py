"""Placement dense_former: learned averages."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from xformer_kit.laws import tiny
from xformer_kit.laws.case import Case
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
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_dense_former_averages_with_learned_numbers(factor):
    made = parts("dense_former")
    given, x = [X], X
    for k, (part, layer) in enumerate(zip(made, LAYERS, strict=True)):
        given.append(x + factor * layer(part.norm[0](x)))
        assert part.average.shape == (k + 2,)
        x = torch.einsum("i,ibtd->btd", part.average.flip(0), torch.stack(given))
    assert_close(through(made, factor), 3 * x)


@torch.no_grad()
def test_a_model_of_averages_starts_as_one_with_pre():
    case = Case(tiny(placement="pre"), "")
    plain, averages = (
        make(config).eval() for config in (case.config, tiny(placement="dense_former"))
    )
    assert_close(case.read(averages, case.ids), case.read(plain, case.ids))
