"""Mixtures of experts: outputs, gradients, and what a forward pass reports."""

import pytest
import torch
from torch.testing import assert_close

from tests.ffn.mixtures import EVERY_FORM, EXPERTS, WIDTH, X, dense, made, of_expert
from xformer_kit.tensors.tokens import UNKNOWN, FFNContext, Tokens


@pytest.mark.parametrize("form", EVERY_FORM, ids=str)
def test_one_expert_is_the_dense_network(form):
    moe = made(experts=1, top_k=1, expert=form)
    assert_close(moe(X)[0], dense(form, of_expert(moe, 0))(X)[0])


@pytest.mark.parametrize("form", EVERY_FORM, ids=str)
def test_equal_experts_are_the_dense_network(form):
    moe = made(experts=4, top_k=3, expert=form)
    with torch.no_grad():
        for name, value in moe.experts.named_parameters():
            if not name.startswith("inner_norm"):
                value.copy_(value[:1].expand_as(value))
    assert_close(moe(X)[0], dense(form, of_expert(moe, 2))(X)[0])


@pytest.mark.parametrize("name", ["softmax", "sigmoid", "expert_choice"])
@pytest.mark.parametrize("shared", [0, 2])
def test_output_is_the_weighted_sum_of_its_experts(name, shared):
    """Sum over experts of the weight of the route (zero if there is none) times the output."""
    form = {"name": "glu", "bias": True}
    moe = made(router={"name": name}, expert=form, shared=shared)
    routes, _ = moe.router(X, UNKNOWN)
    shares = torch.zeros(18, EXPERTS, dtype=torch.float64)
    weight = (
        routes.weight
        if routes.back is None
        else routes.weight.flatten()[routes.back.flatten().argsort()]
    )
    shares[routes.token, routes.expert] = weight
    expected = sum(
        shares[:, e, None] * dense(form, of_expert(moe, e))(X.flatten(0, 1))[0]
        for e in range(EXPERTS)
    )
    if shared:
        expected = expected + moe.shared(X)[0].flatten(0, 1)
        assert moe.shared.up.out_features == 2 * WIDTH
    assert_close(moe(X)[0].flatten(0, 1), expected)


def test_only_an_expert_without_tokens_has_a_gradient_of_zero():
    moe = made(
        router={"name": "softmax", "correction": 0.0, "balance": 0.0},
        expert={"name": "mlp", "bias": True},
    )
    moe.router.correction_bias[3] = -10.0
    out, report = moe(X)
    out.square().sum().backward()
    assert report["load"][3] == 0
    for parameter in moe.experts.parameters():
        assert parameter.grad[3].abs().max() == 0
        assert all(parameter.grad[e].abs().max() > 0 for e in (0, 1, 2, 4))


def test_a_forward_pass_writes_nothing():
    moe = made(router={"name": "sigmoid", "correction": 0.1})
    before = moe.router.correction_bias.clone()
    moe(X)[0].sum().backward()
    assert torch.equal(moe.router.correction_bias, before)


def test_padding_does_not_change_loads_and_losses():
    real = torch.arange(6) < torch.tensor([6, 4, 1])[:, None]
    for name in ("softmax", "expert_choice"):
        moe = made(router={"name": name, "z_loss": 0.1})
        out, report = moe(X, FFNContext(Tokens(real=real)))
        other, again = moe(torch.where(real[..., None], X, 9.0), FFNContext(Tokens(real=real)))
        assert_close(other[real], out[real])
        assert report["load"].tolist() == again["load"].tolist()
        assert_close(report["loss"], again["loss"])
    moe = made()
    report, separate = (
        moe(X, FFNContext(Tokens(real=real)))[1],
        [moe(X[row : row + 1, :n])[1] for row, n in enumerate((6, 4, 1))],
    )
    assert report["load"].tolist() == sum(one["load"] for one in separate).tolist()
    assert report["load"].sum() == 2 * 11


def test_under_autocast_experts_compute_in_bfloat16():
    moe = made(expert={"name": "glu", "bias": True}, shared=1).float()
    x = X.float().requires_grad_()
    exact = moe(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, report = moe(x)
    assert out.dtype == torch.bfloat16
    assert_close(out.float(), exact, rtol=0.05, atol=0.05 * exact.abs().max().item())
    (out.float().sum() + report["loss"]).backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.abs().max() > 0 for p in moe.parameters())


def test_figures_of_a_given_load():
    figures = made().figures({"load": torch.tensor([4, 2, 0, 2, 2])})
    assert figures == {
        "load_violation": 1.0,
        "load.0": 0.4,
        "load.1": 0.2,
        "load.2": 0.0,
        "load.3": 0.2,
        "load.4": 0.2,
    }
    assert made().figures({"load": torch.zeros(5)})["load.3"] == 0  # of a step that was skipped


def test_nothing_is_reported_in_evaluation_without_gradients():
    moe = made().eval()
    with torch.no_grad():
        assert moe(X)[1] == {}
    assert set(moe(X)[1]) == {"load", "loss"}


def test_in_training_a_capacity_changes_neither_earlier_tokens_nor_other_rows():
    moe = made(router={"name": "softmax", "capacity": 0.6}).train()
    with torch.no_grad():
        out, changed = moe(X)[0], X.clone()
        changed[0, 4] += 3.0
        other = moe(changed)[0]
        assert_close(other[0, :4], out[0, :4])
        assert_close(other[1:], out[1:])
        assert_close(moe(X[1:2])[0], out[1:2])
        wide = made(router={"name": "softmax", "capacity": 9.0}).train()
        assert_close(wide(X)[0], made(router={"name": "softmax"})(X)[0])


def test_the_share_that_was_dropped_is_logged():
    moe = made(
        router={"name": "softmax", "capacity": 0.2}, top_k=1
    ).train()  # 1 of 6 tokens for each of 5 experts
    _, report = moe(X)
    assert moe.figures(report)["dropped"] == report["dropped"] / 18 > 0
