"""Dense feed-forward networks against their formulas, against torch.nn and against transformers."""

import math
import re

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.ffn import FFNS
from xformer_kit.ffn.activations import ACTIVATIONS, Activation
from xformer_kit.ffn.dense import _tanhc
from xformer_kit.laws import faults, tiny_config
from xformer_kit.norm import NORMS
from xformer_kit.registry import Context

DIM, WIDTH = 7, 11
X = torch.randn(3, 5, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def made(name, **options):
    part = FFNS.create(
        {"name": name, "width": WIDTH, **options}, dim=DIM, norm=lambda dim: nn.LayerNorm(dim)
    )
    draw = torch.Generator().manual_seed(1)
    for parameter in part.parameters():
        nn.init.normal_(parameter, generator=draw)
    return part.double()


def test_the_choice_of_activations_is_the_table():
    assert Activation.__args__ == tuple(ACTIVATIONS)


# Classes of torch.nn that are no element-wise function of exactly one input, and why.
OTHERS = {
    "MultiheadAttention": "attention",
    "GLU": "halves its input",
    "Softmax": "over channels",
    "Softmax2d": "over channels",
    "Softmin": "over channels",
    "LogSoftmax": "over channels",
    "PReLU": "learned",
    "RReLU": "random",
    "Threshold": "needs to be told",
}


@pytest.mark.parametrize("name", sorted(set(nn.modules.activation.__all__) - set(OTHERS)))
def test_every_activation_of_torch_is_there(name):
    ours = {"relu2", "gelu_tanh", "gelu_quick", "identity", "star_relu", "smelu", "solu"}
    known = {
        key.replace("_", ""): function for key, function in ACTIVATIONS.items() if key not in ours
    }
    assert_close(known[name.lower()](X), getattr(nn, name)()(X))


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("relu2", "relu2"),
        ("gelu", "gelu"),
        ("gelu_tanh", "gelu_new"),
        ("gelu_quick", "quick_gelu"),
        ("silu", "swish"),
    ],
)
def test_activations_are_those_of_transformers(name, theirs):
    activations = pytest.importorskip("transformers.activations")
    assert_close(ACTIVATIONS[name](X), activations.ACT2FN[theirs](X))


def test_star_relu_brings_normal_numbers_to_mean_zero_and_variance_one():
    x = torch.linspace(-12, 12, 240001, dtype=torch.float64)
    density = (-x.square() / 2).exp() / (2 * torch.pi) ** 0.5 * (x[1] - x[0])
    y = ACTIVATIONS["star_relu"](x)
    mean = (y * density).sum()
    assert_close(mean, torch.zeros_like(mean), atol=1e-4, rtol=0)
    assert_close(((y - mean).square() * density).sum(), torch.ones_like(mean), atol=1e-4, rtol=0)
    assert_close(ACTIVATIONS["star_relu"](X), 0.8944 * ACTIVATIONS["relu2"](X) - 0.4472)


def test_smelu_is_zero_then_a_parabola_then_the_identity_and_has_no_kink():
    x = torch.tensor([-9.0, -2.0, -1.0, 0.0, 2.0, 9.0], dtype=torch.float64, requires_grad=True)
    y = ACTIVATIONS["smelu"](x)
    assert y.tolist() == [0, 0, 0.125, 0.5, 2, 9]
    x = (
        torch.tensor([-2.0, 2.0], dtype=torch.float64)[:, None] + torch.tensor([-1e-6, 1e-6])
    ).requires_grad_()
    (slope,) = torch.autograd.grad(ACTIVATIONS["smelu"](x).sum(), x)
    assert_close(
        slope, torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("inner_norm", [True, False])
def test_an_mlp_is_that_of_torch(bias, inner_norm):
    ours = made("mlp", bias=bias, inner_norm=inner_norm, activation="relu")
    between = [ours.inner_norm] if inner_norm else []
    assert_close(ours(X)[0], nn.Sequential(ours.up, nn.ReLU(), *between, ours.down)(X))
    assert (ours.up.bias is not None) == (ours.down.bias is not None) == bias


@pytest.mark.parametrize("activated", ["gate", "up"])
def test_a_glu_is_its_formula(activated):
    ours = made("glu", bias=True, activated=activated, activation="gelu", inner_norm=True)
    other = {"gate": "up", "up": "gate"}[activated]
    gate, up = (getattr(ours, name)(X) for name in (activated, other))
    assert_close(ours(X)[0], ours.down(ours.inner_norm(nn.functional.gelu(gate) * up)))


def test_a_clamped_glu_is_the_expert_of_gpt_oss():
    transformers = pytest.importorskip("transformers")
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

    config = transformers.GptOssConfig(
        hidden_size=DIM, intermediate_size=WIDTH, num_local_experts=1
    )
    theirs, ours = (
        GptOssExperts(config).double(),
        made("glu", bias=True, activation="gelu_quick", clamp=7.0, offset=1.0),
    )
    with torch.no_grad():
        for at, half in enumerate((ours.gate, ours.up)):  # columns of theirs alternate
            half.weight.mul_(4)  # beyond the clamp
            theirs.gate_up_proj[0, :, at::2], theirs.gate_up_proj_bias[0, at::2] = (
                half.weight.t(),
                half.bias,
            )
        theirs.down_proj[0], theirs.down_proj_bias[0] = ours.down.weight.t(), ours.down.bias
        tokens = X.flatten(0, 1)
        chosen, share = (
            torch.zeros(len(tokens), 1, dtype=torch.int64),
            torch.ones(len(tokens), 1, dtype=torch.float64),
        )
        assert ours.gate(tokens).max() > 7 < ours.up(tokens).abs().max()
        assert_close(ours(tokens)[0], theirs(tokens, chosen, share))


def test_solu_with_its_norm_is_the_network_of_x_transformers():
    theirs = (
        pytest.importorskip("x_transformers.x_transformers")
        .FeedForward(DIM, mult=2, solu=True, no_bias=True)
        .double()
    )
    ours = made("mlp", activation="solu", inner_norm=True, width=2 * DIM)
    with torch.no_grad():
        ours.up.weight.copy_(theirs.ff[0][0].weight)
        ours.down.weight.copy_(theirs.ff[-1].weight)
        ours.inner_norm.weight.fill_(1)
        ours.inner_norm.bias.zero_()
    x = torch.randn(2, 3, DIM, dtype=torch.float64)
    assert_close(ours(x)[0], theirs(x))


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_a_softly_clamped_glu_is_that_of_x_transformers(activation):
    module = pytest.importorskip("x_transformers.x_transformers").GLU
    theirs = module(
        DIM, 2 * DIM, nn.GELU() if activation == "gelu" else nn.SiLU(), False, True, 0.7, 1.3
    ).double()
    ours = made("glu", activation=activation, soft_clamp=(0.7, 1.3), width=2 * DIM, bias=True)
    with torch.no_grad():
        for name in ("weight", "bias"):
            up, gate = getattr(theirs.proj, name).chunk(2)
            getattr(ours.up, name).copy_(up)
            getattr(ours.gate, name).copy_(gate)
    x = torch.randn(2, 3, DIM, dtype=torch.float64) * 4
    assert_close(ours.hidden_channels(ours.gate(x), ours.up(x)), theirs(x))


def test_a_soft_clamp_is_smooth_where_its_factor_is_zero():
    ours = made("glu", activation="silu", soft_clamp=(2.0, 3.0))
    gate = torch.zeros(1, ours.width, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(
        ours.hidden_channels(gate, torch.full_like(gate, 1.0)).sum(), gate
    )
    assert_close(slope, torch.full_like(gate, 0.5 * 3 * math.tanh(1 / 3)))


@pytest.mark.parametrize("clamp", [0.0, -7.0])
def test_a_clamp_must_leave_something(clamp):
    (fault,) = messages(FFNS.faults({"name": "glu", "clamp": clamp}, "ffn", Context()))
    assert fault == f"ffn.clamp: must be above 0; got {clamp}. null clamps nothing."


@pytest.mark.parametrize("name", ["mlp", "glu"])
def test_a_norm_inside_needs_one_that_does_something(name):
    (fault,) = messages(faults(tiny_config(ffn={"name": name, "inner_norm": True}, norm="none")))
    assert re.match(
        r"^ffn.inner_norm: takes the norm of model\.decoder, and 'none' does nothing\. Choose ",
        fault,
    )
    assert not faults(tiny_config(ffn={"name": name, "inner_norm": True}, norm="scale"))
    assert set(NORMS) > {"none"}


def test_a_soft_clamp_has_its_gradient_where_it_clamps_nothing():
    """b tanh(x / b) / x is 1 - (x / b)^2 / 3 near 0, and falls by 2 x / (3 b^2), to the last digits
    of fp32.
    """
    x = torch.tensor([1e-6, 1e-4, 1e-3, 1e-2], requires_grad=True)
    _tanhc(x / 2).sum().backward()
    assert_close(x.grad, -x.detach() / 6, rtol=1e-4, atol=0)
    wide = torch.linspace(-5, 5, 1001, dtype=torch.float64)
    assert_close(wide * _tanhc(wide), torch.tanh(wide))
