"""Scale and bound of logits, in all logits at once and in the chunked loss."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import DIM, VOCAB, Composition, build_tiny_model
from xformer_kit.model import loss
from xformer_kit.model.loss import cross_entropy

SHAPED = {"logit_scale": 0.3, "logit_softcap": 2.0, "head_bias": True}
LEARNED = SHAPED | {"logit_scale": "learned"}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scale", [0.3, 2])
def test_logits_are_scaled_and_bounded(scale, tied):
    """Also by a whole number, as model.logit_scale=2 is one."""
    shaped = SHAPED | {"logit_scale": scale}
    case, plain = (
        Composition(tiny_config(tie_embeddings=tied, **shaped), ""),
        Composition(tiny_config(tie_embeddings=tied, head_bias=True), ""),
    )
    ours, raw = case.logits(case.model(), case.ids), plain.logits(plain.model(), plain.ids)
    assert_close(ours, 2 * torch.tanh(scale * raw / 2))
    assert ours.abs().max() < 2


def test_logits_are_divided_by_the_root_of_dim():
    case, plain = (
        Composition(tiny_config(logit_scale=scale), "") for scale in ("per_root_dim", 1.0)
    )
    raw = plain.logits(plain.model(), plain.ids)
    assert_close(case.logits(case.model(), case.ids), raw / DIM**0.5)


def test_each_token_learns_the_scale_of_its_logit():
    case, plain = (
        Composition(tiny_config(logit_scale="learned", head_bias=True), ""),
        Composition(tiny_config(head_bias=True), ""),
    )
    model, raw = case.model(), plain.logits(plain.model(), plain.ids)
    scales = model.head.scales[:VOCAB].detach() * DIM**0.5
    assert_close(case.logits(model, case.ids), raw * scales)
    assert_close(build_tiny_model(case.config).head.scales.detach() * DIM**0.5, torch.ones(40))


@pytest.mark.parametrize("limit", [0, 2**40], ids=["chunks", "at once"])
@pytest.mark.parametrize(
    "shaped",
    [{}, {"logit_scale": 0.3}, {"logit_scale": 2}, {"logit_softcap": 2.0}, SHAPED, LEARNED],
)
def test_the_loss_is_that_of_the_logits(shaped, limit, monkeypatch):
    monkeypatch.setattr(loss, "MAX_UNCHUNKED", limit)
    monkeypatch.setattr(loss, "CHUNK", 5 * VOCAB)
    case = Composition(tiny_config(**shaped), "")
    model, target = case.model(), case.ids.roll(1, -1)
    hidden = case.hidden(model, case.ids).detach().requires_grad_()
    ours = model.head(hidden, target)
    theirs = F.cross_entropy(model.head(hidden).flatten(0, 1), target.flatten(), reduction="sum")
    assert_close(ours, theirs)
    leaves = [hidden, *model.head.parameters(), model.embed.weight]
    for a, b in zip(*(torch.autograd.grad(nats, leaves) for nats in (ours, theirs)), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("shaped", [SHAPED, LEARNED])
def test_generation_with_fused_projections_has_the_same_logits(shaped):
    case = Composition(tiny_config(**shaped), "")
    model = case.model()
    model.head.fused_maps = model.head.fuse(3)
    with torch.no_grad():
        packed = case.logits(model, case.ids)
        model.head.fused_maps = None
        assert_close(packed, case.logits(model, case.ids))


def test_a_softcap_by_eye():
    inputs = torch.ones(1, 1), torch.tensor([[3.0], [0]]), torch.tensor([0])
    high = 2 * torch.tanh(torch.tensor(1.5))
    assert_close(cross_entropy(*inputs, softcap=2.0), (1 + (-high).exp()).log())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"logit_scale": 0.0}, "model.logit_scale: must be above 0; got 0.0. Try 1.0 or learned."),
        (
            {"logit_softcap": -1.0},
            "model.logit_softcap: must be above 0; got -1.0. null caps nothing.",
        ),
    ],
)
def test_faults_of_logit_options_are_reported(changes, sentence):
    assert messages(faults(tiny_config(**changes))) == [sentence]


def test_a_fixed_bias_is_added_and_not_trained():
    case = Composition(tiny_config(head_bias="fixed"), "")
    model = case.model()
    before = case.logits(model, case.ids)
    bias = torch.linspace(-1, 1, len(model.head.bias)).to(model.head.bias)
    model.load_state_dict(model.state_dict() | {"head.bias": bias})
    assert_close(case.logits(model, case.ids), before + bias[:VOCAB])
    assert "head.bias" not in dict(model.named_parameters())


def test_the_transform_has_its_activation_and_no_bias():
    config = tiny_config(
        head_transform=True, head_activation="gelu_tanh", head_transform_bias=False
    )
    transform, hidden = build_tiny_model(config).head.transform, torch.randn(2, 3, DIM)
    dense = F.gelu(hidden @ transform.dense.weight.mT, approximate="tanh")
    assert transform.dense.bias is None
    assert_close(transform(hidden), transform.norm(dense))


def test_options_of_a_transform_need_one():
    config = tiny_config(head_activation="relu", head_transform_bias=False)
    rule, fix = "is about model.head_transform, which is false", "Set model.head_transform=true."
    assert messages(faults(config)) == [
        f"model.head_activation: {rule}; got 'relu'. {fix}",
        f"model.head_transform_bias: {rule}; got false. {fix}",
    ]
