"""Norm scale: its formula."""

import pytest
from torch.testing import assert_close

from tests.norms import numbers, random_norm
from xformer_kit.norm import NORMS


def test_scale_is_its_formula():
    x = numbers()[0].detach()
    scale = random_norm("scale")
    assert_close(scale(x), scale.weight * x / x.square().sum(-1, keepdim=True).sqrt())


def test_scale_is_that_of_x_transformers():
    theirs = pytest.importorskip("x_transformers.x_transformers")
    x, scale, other = numbers()[0].detach(), random_norm("scale"), theirs.ScaleNorm(7).double()
    other.load_state_dict({"g": scale.weight / 7**0.5})
    assert_close(scale(x), other(x))


def test_scale_starts_as_an_rms_norm_of_weight_one():
    scale, rms = (
        NORMS.create({"name": name, "eps": 1e-9}, dim=7).double() for name in ("scale", "rms")
    )
    assert_close(scale(numbers()[0]), rms(numbers()[0]))
