"""Norms against their formulas."""

import importlib
import re

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import rms_norm
from torch.testing import assert_close

from tests import norms
from tests.messages import messages
from tests.norms import random_norm
from xformer_kit.norm import NORMS, RMSNorm
from xformer_kit.norm.norms import _RMSNormFunction
from xformer_kit.registry import Context


@pytest.fixture
def numbers():
    return norms.numbers()


def test_rms_is_its_formula(numbers):
    x, weight = numbers
    norm = RMSNorm(7, eps=1e-3).double()
    norm.load_state_dict({"weight": weight})
    assert_close(norm(x), x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * weight)


def test_written_out_rms_and_its_gradients_equal_those_of_torch(numbers):
    x, weight = numbers
    ours, theirs = _RMSNormFunction.apply(x, weight, 1e-3)[0], rms_norm(x, (7,), weight, 1e-3)
    assert_close(ours, theirs)
    g = torch.randn(ours.shape, dtype=torch.float64)
    assert_close(torch.autograd.grad(ours, numbers, g), torch.autograd.grad(theirs, numbers, g))


@pytest.mark.parametrize("grad", [True, False])
def test_rms_without_a_weight_is_its_formula_and_so_is_its_gradient(numbers, grad):
    x, norm = numbers[0], RMSNorm(7, eps=1e-3, weight=False)
    assert not list(norm.parameters())
    with torch.set_grad_enabled(grad):
        ours, theirs = norm(x), x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt()
    assert_close(ours, theirs)
    if grad:
        g = torch.randn(ours.shape, dtype=torch.float64)
        assert_close(torch.autograd.grad(ours, x, g), torch.autograd.grad(theirs, x, g))


def test_written_out_rms_has_a_first_and_a_second_derivative(numbers):
    def norm(x, weight):
        return _RMSNormFunction.apply(x, weight, 1e-3)[0]

    assert gradcheck(norm, numbers)
    assert gradgradcheck(norm, numbers)


@pytest.mark.parametrize("frozen", [0, 1])
def test_rms_trains_what_is_not_frozen(numbers, frozen):
    numbers[frozen].requires_grad_(False)
    _RMSNormFunction.apply(*numbers, 1e-3)[0].sum().backward()
    assert numbers[frozen].grad is None
    assert numbers[1 - frozen].grad.any()


def test_rms_in_half_precision_keeps_its_type():
    x = torch.randn(3, 7, dtype=torch.bfloat16)
    assert RMSNorm(7).bfloat16()(x).dtype == torch.bfloat16


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_is_that_of_torch_with_what_it_has(numbers, weight, bias):
    ours, theirs = random_norm("layer", weight=weight, bias=bias), torch.nn.LayerNorm(7).double()
    state = {"weight": torch.ones(7), "bias": torch.zeros(7)} | ours.state_dict()
    theirs.load_state_dict(state)
    assert len(list(ours.parameters())) == weight + bias
    assert_close(ours(numbers[0]), theirs(numbers[0]))


# class of transformers: (name, options) of ours
PEERS = {
    "llama.modeling_llama.LlamaRMSNorm": ("rms", {"cast": "before"}),
    "olmo2.modeling_olmo2.Olmo2RMSNorm": ("rms", {"cast": "after"}),
    "gpt_oss.modeling_gpt_oss.GptOssRMSNorm": ("rms", {"cast": "after"}),
    "gemma.modeling_gemma.GemmaRMSNorm": ("rms", {"unit_offset": True}),
    "gemma2.modeling_gemma2.Gemma2RMSNorm": ("rms", {"unit_offset": True}),
    "olmo.modeling_olmo.OlmoLayerNorm": ("layer", {"weight": False, "bias": False, "eps": 1e-5}),
    "cohere.modeling_cohere.CohereLayerNorm": ("layer", {"bias": False, "eps": 1e-5}),
    "nemotron.modeling_nemotron.NemotronLayerNorm1P": ("layer", {"unit_offset": True, "eps": 1e-5}),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rms_without_a_weight_is_the_exact_one_rounded_once(dtype):
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(1)).to(dtype) * 3
    norm = RMSNorm(7, weight=False)
    assert torch.equal(norm(x), norm(x.float()).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("peer", PEERS)
def test_norms_are_those_of_transformers_in_half_precision_too(peer, dtype):
    pytest.importorskip("transformers")
    where, _, name = f"transformers.models.{peer}".rpartition(".")
    theirs, (kind, options) = getattr(importlib.import_module(where), name)(7), PEERS[peer]
    ours = random_norm(kind, dtype, **{"eps": 1e-6, **options})
    theirs.to(dtype).load_state_dict(
        {name.replace("offset", "weight"): p for name, p in ours.state_dict().items()}
    )
    for eps in ("eps", "variance_epsilon"):
        if hasattr(theirs, eps):
            setattr(theirs, eps, options.get("eps", 1e-6))
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(1)).to(dtype) * 3
    bound = {"rtol": 0, "atol": 0} if dtype == torch.bfloat16 and kind == "rms" else {}
    assert_close(ours(x), theirs(x), **bound)


def test_where_rms_is_cast_back_matters_only_in_half_precision():
    after, before = (random_norm("rms", torch.bfloat16, cast=cast) for cast in ("after", "before"))
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(1))
    assert not torch.equal(after(x.bfloat16()), before(x.bfloat16()))
    assert torch.equal(after.float()(x), before.float()(x))


def test_l2_is_its_formula(numbers):
    x = numbers[0].detach()
    length = x.square().sum(-1, keepdim=True).sqrt()
    assert_close(random_norm("l2")(x), x / length)
    assert_close(random_norm("l2")(x), torch.nn.functional.normalize(x, dim=-1))
    assert not random_norm("l2")(torch.zeros(3, 7)).any()


def test_a_length_that_half_precision_cannot_hold():
    x = torch.full((2, 700), 6e4, dtype=torch.float16)
    for name in ("scale", "l2"):
        out = NORMS.create({"name": name}, dim=700).half()(x)
        assert out.dtype == torch.float16
        assert_close(
            out.float().norm(dim=-1),
            torch.full((2,), 700**0.5 if name == "scale" else 1.0),
            rtol=1e-2,
            atol=0,
        )


@pytest.mark.parametrize("bias", [True, False])
def test_dyt_is_its_formula(numbers, bias):
    x, norm = numbers[0].detach(), random_norm("dyt", bias=bias)
    expected = norm.weight * torch.tanh(norm.alpha * x) + (norm.bias if bias else 0)
    assert_close(norm(x), expected)
    start = NORMS.create({"name": "dyt", "alpha": 0.25}, dim=7)
    assert_close(start(torch.ones(7)), torch.full((7,), 0.25).tanh())


def test_dyt_and_rms_without_a_weight_are_those_of_x_transformers(numbers):
    theirs = pytest.importorskip("x_transformers.x_transformers")
    x = numbers[0].detach()
    dyt = random_norm("dyt")
    assert_close(RMSNorm(7, weight=False, eps=1e-12)(x), theirs.SimpleRMSNorm(7)(x))
    other = theirs.DynamicTanh(7).double()
    other.load_state_dict({"pre_tanh_scale": dyt.alpha[0], "gamma": dyt.weight, "beta": dyt.bias})
    assert_close(dyt(x), other(x))


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("rms", "eps", -1.0),
        ("layer", "eps", -1.0),
        ("scale", "eps", 0.0),
        ("l2", "eps", 0.0),
        ("dyt", "alpha", 0.0),
        ("derf", "alpha", 0.0),
    ],
)
def test_an_option_out_of_range_is_answered(name, option, value):
    (fault,) = messages(NORMS.faults({"name": name, option: value}, "norm", Context()))
    assert re.match(rf"^norm\.{option}: must be (above|at least) 0; got {value}\.", fault)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"unit_offset": True},
            (
                "unit_offset: changes the weight, and with weight=false there is none; got true."
                " Leave it out."
            ),
        ),
        (
            {"cast": "before"},
            (
                "cast: changes the weight, and with weight=false there is none; got 'before'. Leave"
                " it out."
            ),
        ),
    ],
)
def test_an_option_of_a_weight_that_is_not_there_is_answered(options, said):
    assert messages(
        NORMS.faults({"name": "rms", "weight": False, **options}, "norm", Context())
    ) == [f"norm.{said}"]


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_norm_keeps_the_type_of_its_input_whatever_that_of_its_weights(name, dtype):
    x = torch.randn(3, 7, dtype=dtype)
    assert NORMS.create({"name": name}, dim=7).to(dtype)(x).dtype == dtype
