"""Each law of xformer_kit/laws/numerics.py is broken by a faulty component or kernel."""

import pytest
import torch
from breaking import (
    CROSS,
    TWO,
    IgnoresSource,
    assert_caught,
    broken_component_test,
    laws_in,
    registered,
)
from torch import Tensor, nn

from xformer_kit.attention import ATTENTIONS, MultiHead
from xformer_kit.ffn import FFNS, MLP
from xformer_kit.kernel import KERNELS, SDPA, Reference
from xformer_kit.laws import LAWS, LawBroken, tiny_config
from xformer_kit.laws.masks import visible_keys
from xformer_kit.laws.numerics import without_skips
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.model.model import Model
from xformer_kit.tensors import vector


class NoScale(Reference):
    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None):
        return super().__call__(q, k, v, context, 1.01 * scale, dropout, scores)


class NoGradientOfKeys(SDPA):
    """Has correct outputs and wrong gradients."""

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None):
        return super().__call__(q, k.detach(), v, context, scale, dropout, scores)


class CoarseInBF16(SDPA):
    """Is correct in fp32, and loses most bits in bf16."""

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None):
        out = super().__call__(q, k, v, context, scale, dropout, scores)
        return (out * 4).round() / 4 if out.dtype == torch.bfloat16 else out


class UnusedParameter(MLP):
    def __init__(self, dim: int, *, width: int | None = None):
        super().__init__(dim, width=width)
        self.spare = nn.Parameter(torch.ones(dim))


class UnusedInGraph(UnusedParameter):
    """Has a parameter in the graph whose gradient is zero, without declaring it."""

    def forward(self, x, tokens):
        return super().forward(x + 0 * self.spare)


class DeclaredZeroGradient(UnusedInGraph):
    parameter_info = {"spare": vector("dim", zero_gradient=True)}


class ZeroQueries(MultiHead):
    """Has queries that are all 0, for any number of keys."""

    def split(self, x):
        return super().split(x) * (x.shape[-1] == self.k.out_features)


class InfiniteGradient(MLP):
    def forward(self, x, tokens):
        x, report = super().forward(x)
        return x + 0 * (self.up.weight - self.up.weight.detach()).sum().abs().sqrt(), report


class WritesBuffer(MLP):
    def __init__(self, dim: int):
        super().__init__(dim)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, tokens):
        self.calls += 1
        return super().forward(x)


class RoundsToBF16(MLP):
    """Rounds inputs in float32 to bfloat16."""

    def forward(self, x, tokens):
        return super().forward(x.to(torch.bfloat16).to(x.dtype) if x.dtype == torch.float32 else x)


ARGUMENTS = [
    (
        "gradients",
        FFNS,
        UnusedParameter,
        "encoder.0.ffn.spare is not in the",
        TWO | {"encoder": {"ffn": "broken"}},
    ),
    (
        "gradients",
        ATTENTIONS,
        IgnoresSource,
        "the gradient of encoder.0.attn.q.weight is zero",
        CROSS,
    ),
    ("kernels", KERNELS, NoScale, "'broken' in fp32, plain: logits is off", {"layers": 1}),
    ("kernels", KERNELS, NoGradientOfKeys, "fp32, plain: embed.weight is off", {"layers": 1}),
    ("kernels in bf16", KERNELS, CoarseInBF16, "'broken' in bf16", {"layers": 1}),
    ("precision", FFNS, RoundsToBF16, "float32 differs from float64", {"ffn": "broken"}),
    ("gradients", FFNS, UnusedParameter, "ffn.spare is not in the step's graph", {"ffn": "broken"}),
    (
        "gradients",
        FFNS,
        UnusedInGraph,
        "the gradient of decoder.0.ffn.spare is zero",
        {"ffn": "broken"},
    ),
    ("gradients", FFNS, InfiniteGradient, "is not finite", {"ffn": "broken"}),
    ("gradients", FFNS, WritesBuffer, "ffn.calls is written in forward", {"ffn": "broken"}),
]


test_a_broken_component_is_caught = broken_component_test(ARGUMENTS)


def test_every_law_catches_a_broken_component():
    assert laws_in("numerics") == {law for law, *_ in ARGUMENTS}


def test_a_zero_gradient_may_be_declared():
    with registered(FFNS, DeclaredZeroGradient):
        assert LAWS["gradients"](tiny_config(ffn="broken")) is None


ALLOWED_ZEROS = {
    "a draw skips sublayers": {"extra": {"stochastic_depth": {"rate": 0.95}}},
    "one key is no choice": {"mask": {"name": "global_tokens", "count": 1}, "position": "t5"},
    "one key is no choice, and kernels cancel": {"mask": {"name": "sliding_window", "window": 1}},
}


@pytest.mark.parametrize("changes", ALLOWED_ZEROS.values(), ids=list(ALLOWED_ZEROS))
def test_a_gradient_may_be_zero_for_one_draw_or_one_key(changes):
    for law in ("kernels", "gradients"):
        assert LAWS[law](tiny_config(**changes)) is None
    assert_caught(
        "gradients", FFNS, UnusedInGraph, "ffn.spare is zero", {**changes, "ffn": "broken"}
    )
    assert_caught(
        "gradients", ATTENTIONS, ZeroQueries, "attn.q.weight is zero", {**changes, "attn": "broken"}
    )


def test_a_gradient_may_be_zero_if_a_sparse_score_sees_only_far_keys():
    """Four gates of about a half lower the score of the next key so far that entmax gives it a
    weight of 0.
    """
    config = tiny_config(
        attn={
            "name": "multi_head",
            "head_dim": 7,
            "v_head_dim": 11,
            "clip": 2.0,
            "qk_norm": "each_head",
            "scale": 0.3,
        }
        | {"score": {"name": "entmax"}},
        mask={"name": "strided", "merged": False},
        position={"name": "forgetting", "gates": "pair", "gate_dim": 3, "bidirectional": True},
        norm={"name": "derf", "alpha": 0.3, "shift": 0.2, "bias": False},
        placement="output",
        ffn={"name": "mlp", "activation": "logsigmoid", "bias": True},
    )
    assert LAWS["gradients"](config) is None


@pytest.mark.parametrize(("score", "before"), [("softmax", False), ("entmax", True)])
def test_the_second_check_shows_the_previous_token_to_sparse_scores_only(score, before):
    """A head of a strided mask sees every fourth token, which gives a softmax gradients."""
    config = tiny_config(
        mask={"name": "strided", "merged": False},
        attn={"name": "multi_head", "score": {"name": score}},
    )
    groups = without_skips(Composition(config, "gradients"), 2).decoder.attention_groups
    visible = (visible_keys(group.mask).diagonal(-1, -2, -1).any(-1).all() for group in groups)
    assert all(bool(one) == before for one in visible)


@pytest.mark.extended
def test_gradients_of_a_softmax_of_one_key_are_compared_again_with_smaller_weights():
    """Scores of some thousands: a fast kernel cancels terms that `reference` has as exact zeros."""
    large = {
        "attn": {"name": "dot", "scale": 0.02},
        "mask": {"name": "fixed", "stride": 4, "summary": 1},
        "placement": "none",
        "position": {"name": "sinusoidal", "layout": "concatenated"},
        "ffn": {"name": "glu", "activation": "gelu_quick", "width": 19},
        "decoder": {"layers": 3, "unique_layers": 2},
        "tie_embeddings": False,
    }
    large = TWO | large
    assert LAWS["kernels"](tiny_config(**large)) is None
    assert_caught(
        "kernels",
        KERNELS,
        NoGradientOfKeys,
        "fp32, plain: embed.weight is off",
        {**large, "kernel": "broken"},
    )


FURTHER_TOKENS = {
    "gradients": (
        Tensor.detach,
        "the gradient of decoder.extra.future_tokens.2.attn.q.weight is zero",
    ),
    "causality": (lambda x: x.flip(2), "changes what comes before"),
}


@pytest.mark.parametrize("law", FURTHER_TOKENS)
def test_laws_apply_to_all_predicted_tokens(law, monkeypatch):
    change, match = FURTHER_TOKENS[law]
    config, right = tiny_config(extra={"future_tokens": {"count": 3}}), Model.hidden
    assert LAWS[law](config) is None

    def wrong(model, tokens, *args, **options):
        (first, *others), report = right(model, tokens, multi_token=True)
        return torch.stack([first, *change(torch.stack(others))]), report

    monkeypatch.setattr(Model, "hidden", wrong)
    with pytest.raises(LawBroken, match=match):
        LAWS[law](config)


@pytest.mark.parametrize("law", ["causality", "documents", "gradients", "kernels"])
def test_only_outputs_of_a_kernel_that_trains_on_another_device_are_checked(law):
    assert LAWS[law](tiny_config(kernel="flex", decoder={"kernel": {"name": "flex"}})) is None


def test_wrong_outputs_of_a_kernel_that_trains_on_another_device_are_caught(monkeypatch):
    monkeypatch.setattr(NoScale, "trains_on", ("cuda",))
    with (
        registered(KERNELS, NoScale),
        pytest.raises(LawBroken, match="'broken' in fp32, plain: logits is off"),
    ):
        LAWS["kernels"](tiny_config(kernel="broken"))
