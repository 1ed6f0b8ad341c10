"""Norm derf: its formula."""

import pytest
import torch
from torch.testing import assert_close

from tests.norms import numbers, random_norm
from xformer_kit.norm import NORMS


def test_derf_is_that_of_x_transformers():
    theirs = pytest.importorskip("x_transformers.x_transformers")
    x, derf, other = numbers()[0].detach(), random_norm("derf"), theirs.Derf(7).double()
    other.load_state_dict(
        {"alpha": derf.factor[0], "s": derf.shift[0], "gamma": derf.weight, "beta": derf.bias}
    )
    assert_close(derf(x), other(x))


@pytest.mark.parametrize("bias", [True, False])
def test_derf_is_its_formula(bias):
    x, norm = numbers()[0].detach(), random_norm("derf", bias=bias)
    expected = norm.weight * torch.erf(norm.factor * x + norm.shift) + (norm.bias if bias else 0)
    assert_close(norm(x), expected)
    start = NORMS.create({"name": "derf", "alpha": 0.25, "shift": -0.5}, dim=7)
    assert not start(torch.full((7,), 2.0)).any()
    assert_close(start(torch.full((7,), 99.0)), torch.ones(7))
