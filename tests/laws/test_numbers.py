"""Kernels, precision and gradients: each law of xformer_kit/laws/numbers.py bites."""

import pytest
import torch
from breaking import CROSS, TWO, Blind, bites, each, laws_of, registered
from torch import Tensor, nn

from xformer_kit.attention import ATTENTIONS, MultiHead
from xformer_kit.ffn import FFNS, MLP
from xformer_kit.kernel import KERNELS, SDPA, Reference
from xformer_kit.laws import LAWS, LawBroken, tiny
from xformer_kit.laws.composition import Composition
from xformer_kit.laws.masks import picture
from xformer_kit.laws.numbers import freed
from xformer_kit.model.model import Model


class NoScale(Reference):
    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None):
        return super().__call__(q, k, v, context, 1.01 * scale, dropout, scores)


class NoGradientOfKeys(SDPA):
    """Right outputs and wrong gradients."""

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None):
        return super().__call__(q, k.detach(), v, context, scale, dropout, scores)


class Coarse(SDPA):
    """Right in fp32; loses most bits in bf16."""

    def __call__(self, q, k, v, context, scale, dropout=0.0, scores=None):
        out = super().__call__(q, k, v, context, scale, dropout, scores)
        return (out * 4).round() / 4 if out.dtype == torch.bfloat16 else out


class Unused(MLP):
    def __init__(self, dim: int, *, width: int | None = None):
        super().__init__(dim, width=width)
        self.spare = nn.Parameter(torch.ones(dim))


class Useless(Unused):
    """In the graph, with a gradient of zero that it does not name."""

    def forward(self, x, tokens):
        return super().forward(x + 0 * self.spare)


class Named(Useless):
    no_gradient = ("spare",)


class Asleep(MultiHead):
    """Queries that are all 0, however many keys there are."""

    def split(self, x):
        return super().split(x) * (x.shape[-1] == self.k.out_features)


class InfiniteGradient(MLP):
    def forward(self, x, tokens):
        x, report = super().forward(x)
        return x + 0 * (self.up.weight - self.up.weight.detach()).sum().abs().sqrt(), report


class Counting(MLP):
    def __init__(self, dim: int):
        super().__init__(dim)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, tokens):
        self.calls += 1
        return super().forward(x)


class Single(MLP):
    """Rounds to half precision on the way."""

    def forward(self, x, tokens):
        return super().forward(x.to(torch.bfloat16).to(x.dtype) if x.dtype == torch.float32 else x)


ARGUMENTS = [
    (
        "gradients",
        FFNS,
        Unused,
        "encoder.0.ffn.spare is not in the",
        TWO | {"encoder": {"ffn": "broken"}},
    ),
    ("gradients", ATTENTIONS, Blind, "the gradient of encoder.0.attn.q.weight is zero", CROSS),
    ("kernels", KERNELS, NoScale, "'broken' in fp32, plain: logits is off", {"layers": 1}),
    ("kernels", KERNELS, NoGradientOfKeys, "fp32, plain: embed.weight is off", {"layers": 1}),
    ("kernels in bf16", KERNELS, Coarse, "'broken' in bf16", {"layers": 1}),
    ("precision", FFNS, Single, "float32 differs from float64", {"ffn": "broken"}),
    ("gradients", FFNS, Unused, "ffn.spare is not in the step's graph", {"ffn": "broken"}),
    ("gradients", FFNS, Useless, "the gradient of decoder.0.ffn.spare is zero", {"ffn": "broken"}),
    ("gradients", FFNS, InfiniteGradient, "is not finite", {"ffn": "broken"}),
    ("gradients", FFNS, Counting, "ffn.calls is written in forward", {"ffn": "broken"}),
]


@each(ARGUMENTS)
def test_a_broken_component_is_caught(law, registry, component, match, composition):
    bites(law, registry, component, match, composition)


def test_every_law_is_seen_to_bite():
    assert laws_of("numbers") == {law for law, *_ in ARGUMENTS}


def test_a_null_gradient_may_be_named():
    with registered(FFNS, Named):
        assert LAWS["gradients"](tiny(ffn="broken")) is None


RIGHTLY_ZERO = {
    "a draw skips sublayers": {"extra": {"stochastic_depth": {"rate": 0.95}}},
    "one key is no choice": {"mask": {"name": "global_tokens", "count": 1}, "position": "t5"},
    "one key is no choice, and kernels cancel": {"mask": {"name": "sliding_window", "window": 1}},
}


@pytest.mark.parametrize("changes", RIGHTLY_ZERO.values(), ids=list(RIGHTLY_ZERO))
def test_a_gradient_may_be_zero_for_a_good_reason(changes):
    for law in ("kernels", "gradients"):
        assert LAWS[law](tiny(**changes)) is None
    bites("gradients", FFNS, Useless, "ffn.spare is zero", {**changes, "ffn": "broken"})
    bites("gradients", ATTENTIONS, Asleep, "attn.q.weight is zero", {**changes, "attn": "broken"})


def test_a_gradient_may_be_zero_where_a_sparse_score_sees_far_keys_alone():
    """Behind four gates of about a half the next key has lost more than entmax forgives."""
    config = tiny(
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
def test_the_second_look_shows_the_token_before_to_sparse_scores_alone(score, before):
    """A head of a strided mask sees every fourth token: enough for a softmax to learn from, where
    nothing else is at fault.
    """
    config = tiny(
        mask={"name": "strided", "merged": False},
        attn={"name": "multi_head", "score": {"name": score}},
    )
    looks = freed(Composition(config, "gradients"), draw=2).decoder.groups
    assert all(
        bool(picture(look.mask).diagonal(-1, -2, -1).any(-1).all()) == before for look in looks
    )


def test_gradients_behind_a_softmax_of_one_key_are_compared_where_it_has_several():
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
    assert LAWS["kernels"](tiny(**large)) is None
    bites(
        "kernels",
        KERNELS,
        NoGradientOfKeys,
        "fp32, plain: embed.weight is off",
        {**large, "kernel": "broken"},
    )


LATER = {
    "gradients": (
        Tensor.detach,
        "the gradient of decoder.extra.future_tokens.2.attn.q.weight is zero",
    ),
    "causality": (lambda x: x.flip(2), "changes what comes before"),
}


@pytest.mark.parametrize("law", LATER)
def test_laws_are_of_all_tokens_that_are_predicted(law, monkeypatch):
    change, match = LATER[law]
    config, right = tiny(extra={"future_tokens": {"count": 3}}), Model.hidden
    assert LAWS[law](config) is None

    def wrong(model, tokens, *args, **options):
        (first, *others), report = right(model, tokens, further=True)
        return torch.stack([first, *change(torch.stack(others))]), report

    monkeypatch.setattr(Model, "hidden", wrong)
    with pytest.raises(LawBroken, match=match):
        LAWS[law](config)


@pytest.mark.parametrize("law", ["causality", "documents", "gradients", "kernels"])
def test_a_kernel_that_learns_elsewhere_is_judged_by_its_outputs(law):
    assert LAWS[law](tiny(kernel="flex", decoder={"kernel": {"name": "flex"}})) is None


def test_outputs_of_a_kernel_that_learns_elsewhere_are_compared(monkeypatch):
    monkeypatch.setattr(NoScale, "trains_on", ("cuda",))
    with (
        registered(KERNELS, NoScale),
        pytest.raises(LawBroken, match="'broken' in fp32, plain: logits is off"),
    ):
        LAWS["kernels"](tiny(kernel="broken"))
