"""Norms against their formulas."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import rms_norm
from torch.testing import assert_close

from xformer_kit.norm import RMS, _RMSNorm


@pytest.fixture
def numbers():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 2, 7, generator=draw, dtype=torch.float64).transpose(1, 2)  # not contiguous, as in a head
    weight = torch.randn(7, generator=draw, dtype=torch.float64)
    return x.requires_grad_(), weight.requires_grad_()


def test_rms_is_its_formula(numbers):
    x, weight = numbers
    norm = RMS(7, eps=1e-3).double()
    norm.load_state_dict({"weight": weight})
    assert_close(norm(x), x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * weight)


def test_rms_by_hand_is_torchs_own_and_so_are_its_gradients(numbers):
    x, weight = numbers
    ours, theirs = _RMSNorm.apply(x, weight, 1e-3)[0], rms_norm(x, (7,), weight, 1e-3)
    assert_close(ours, theirs)
    g = torch.randn(ours.shape, dtype=torch.float64)
    assert_close(torch.autograd.grad(ours, numbers, g), torch.autograd.grad(theirs, numbers, g))


def test_rms_by_hand_has_a_first_and_a_second_derivative(numbers):
    def norm(x, weight):
        return _RMSNorm.apply(x, weight, 1e-3)[0]

    assert gradcheck(norm, numbers)
    assert gradgradcheck(norm, numbers)


@pytest.mark.parametrize("frozen", [0, 1])
def test_rms_trains_what_is_not_frozen(numbers, frozen):
    numbers[frozen].requires_grad_(False)
    _RMSNorm.apply(*numbers, 1e-3)[0].sum().backward()
    assert numbers[frozen].grad is None
    assert numbers[1 - frozen].grad.any()


def test_rms_in_half_precision_keeps_its_type():
    x = torch.randn(3, 7, dtype=torch.bfloat16)
    assert RMS(7).bfloat16()(x).dtype == torch.bfloat16
