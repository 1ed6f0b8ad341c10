"""Norm scale: its formula."""

import pytest
import torch
from torch.testing import assert_close

from xformer_kit.norm import NORMS


@pytest.fixture
def numbers():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 2, 7, generator=draw, dtype=torch.float64).transpose(
        1, 2
    )  # not contiguous, as in a head
    weight = torch.randn(7, generator=draw, dtype=torch.float64)
    return x.requires_grad_(), weight.requires_grad_()


def drawn(module, dtype=torch.float64):
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw))
    return module.to(dtype)


def made(name, dtype=torch.float64, **options):
    return drawn(NORMS.create({"name": name, **options}, dim=7), dtype)


def test_scale_is_its_formula(numbers):
    x = numbers[0].detach()
    scale = made("scale")
    assert_close(scale(x), scale.weight * x / x.square().sum(-1, keepdim=True).sqrt())


def test_scale_is_that_of_x_transformers(numbers):
    theirs = pytest.importorskip("x_transformers.x_transformers")
    x, scale, other = numbers[0].detach(), made("scale"), theirs.ScaleNorm(7).double()
    other.load_state_dict({"g": scale.weight / 7**0.5})
    assert_close(scale(x), other(x))


def test_scale_starts_as_an_rms_norm_of_weight_one(numbers):
    scale, rms = (
        NORMS.create({"name": name, "eps": 1e-9}, dim=7).double() for name in ("scale", "rms")
    )
    assert_close(scale(numbers[0]), rms(numbers[0]))
