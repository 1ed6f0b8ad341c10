"""Mixtures of experts: special cases, what is reported and learned, and what is refused."""

import re

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.ffn import FFNS
from xformer_kit.inspect import flops
from xformer_kit.laws import faults, tiny
from xformer_kit.laws.case import VOCAB
from xformer_kit.model.build import build_model
from xformer_kit.model.tokens import UNKNOWN, Tokens
from xformer_kit.optim import parameter_groups

DIM, WIDTH, EXPERTS = 7, 11, 5
X = torch.randn(3, 6, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EVERY_FORM = [
    {"name": "mlp", "activation": "relu2", "bias": True},
    {"name": "mlp", "inner_norm": True},
    {"name": "glu", "bias": True, "activated": "up", "clamp": 1.5, "offset": 1.0},
    {"name": "glu", "activation": "gelu", "inner_norm": True},
]


def drawn(part):
    draw = torch.Generator().manual_seed(1)
    for parameter in part.parameters():
        nn.init.normal_(parameter, generator=draw)
    return part.double()


def made(**options):
    node = {"name": "moe", "experts": EXPERTS, "width": WIDTH, **options}
    return drawn(FFNS.create(node, dim=DIM, norm=lambda dim: nn.LayerNorm(dim)))


def dense(expert, weights):
    """The network whose weights are given, by their names."""
    part = FFNS.create(
        {"width": WIDTH, **expert}, dim=DIM, norm=lambda dim: nn.LayerNorm(dim)
    ).double()
    part.load_state_dict(weights)
    return part


def of_expert(moe, expert):
    """The weights of one expert; those of an inner norm are all experts'."""
    stacked = moe.experts.state_dict().items()
    return {
        name: value if name.startswith("inner_norm") else value[expert] for name, value in stacked
    }


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
def test_a_mixture_is_the_sum_that_it_says(name, shared):
    """Every expert computes every token, and the weights say what counts."""
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


def test_an_idle_expert_has_a_gradient_of_zero_and_the_others_have_theirs():
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


def test_padding_has_no_part_in_loads_and_losses():
    real = torch.arange(6) < torch.tensor([6, 4, 1])[:, None]
    for name in ("softmax", "expert_choice"):
        moe = made(router={"name": name, "z_loss": 0.1})
        out, report = moe(X, Tokens(real=real))
        other, again = moe(torch.where(real[..., None], X, 9.0), Tokens(real=real))
        assert_close(other[real], out[real])
        assert report["load"].tolist() == again["load"].tolist()
        assert_close(report["loss"], again["loss"])
    moe = made()
    report, alone = (
        moe(X, Tokens(real=real))[1],
        [moe(X[row : row + 1, :n])[1] for row, n in enumerate((6, 4, 1))],
    )
    assert report["load"].tolist() == sum(one["load"] for one in alone).tolist()
    assert report["load"].sum() == 2 * 11


def test_under_autocast_experts_compute_in_its_type():
    moe = made(expert={"name": "glu", "bias": True}, shared=1).float()
    x = X.float().requires_grad_()
    exact = moe(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, report = moe(x)
    assert out.dtype == torch.bfloat16
    assert_close(out.float(), exact, rtol=0.05, atol=0.05 * exact.abs().max().item())
    (out.float().sum() + report["loss"]).backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.abs().max() > 0 for p in moe.parameters())


def test_figures_by_eye():
    told = made().figures({"load": torch.tensor([4, 2, 0, 2, 2])})
    assert told == {
        "load_violation": 1.0,
        "load.0": 0.4,
        "load.1": 0.2,
        "load.2": 0.0,
        "load.3": 0.2,
        "load.4": 0.2,
    }
    assert made().figures({"load": torch.zeros(5)})["load.3"] == 0  # of a step that was left out


def test_nothing_is_reported_where_nobody_listens():
    moe = made().eval()
    with torch.no_grad():
        assert moe(X)[1] == {}
    assert set(moe(X)[1]) == {"load", "loss"}


# In a model.


def tiny_model(**changes):
    return build_model(tiny(**changes), VOCAB)


def test_weights_start_as_matrices_of_the_expert_and_biases_at_zero():
    moe = {
        "name": "moe",
        "experts": 64,
        "width": 48,
        "expert": {"name": "mlp", "bias": True},
        "router": {"name": "softmax", "bias": True},
    }
    config = tiny(ffn=moe) | {"init": {"name": "lecun", "embedding": 0.02, "depth_scaled": True}}
    ffn = build_model(config, VOCAB).decoder.blocks[0].ffn
    assert ffn.experts.up.weight.std().item() == pytest.approx(36**-0.5, rel=0.03)
    assert ffn.experts.down.weight.std().item() == pytest.approx(
        48**-0.5 / 2, rel=0.03
    )  # of 4 residual writes
    assert all(
        p.abs().max() == 0 for p in (ffn.experts.up.bias, ffn.experts.down.bias, ffn.router.bias)
    )


def test_placement_deepnorm_scales_experts_as_it_scales_dense_networks():
    deep, plain = (
        tiny_model(ffn={"name": "moe", "shared": 1}, placement=name).state_dict()
        for name in ("deepnorm", "post")
    )
    for name in ("experts.up", "experts.down", "shared.gate", "router"):
        name = f"decoder.1.ffn.{name}.weight"
        assert_close(
            deep[name].std() / plain[name].std(),
            torch.tensor(1.0 if "router" in name else 16**-0.25),
        )


def test_biases_of_experts_do_not_decay():
    moe = {
        "name": "moe",
        "shared": 1,
        "expert": {"name": "glu", "bias": True},
        "router": {"name": "softmax", "bias": True},
    }
    decays, rest = parameter_groups(tiny_model(ffn=moe), 0.1)
    assert all(name.endswith("weight") for name, _ in decays["params"])
    assert {name for name, p in rest["params"] if p.ndim > 1} == {
        f"decoder.{layer}.ffn.experts.{name}.bias"
        for layer in range(2)
        for name in ("gate", "up", "down")
    }


def test_a_token_costs_what_its_experts_cost():
    """2 n k m for each product: the router, three for each of 2 experts, the weighted sum of those,
    and the shared one.
    """
    moe = {"name": "moe", "experts": 9, "top_k": 2, "width": 20, "shared": 3}
    with torch.device("meta"):
        model = build_model(tiny(ffn=moe, layers=1), VOCAB)
    found = flops.count(model, 13)
    assert found.modules["decoder.0.ffn"] == 2 * 36 * (9 + 3 * 2 * 20 + 2 + 3 * 3 * 20)
    assert found.modules["decoder.0.ffn.experts.down"] == 2 * 36 * 2 * 20
    assert model.decoder.blocks[0].ffn.unused() == 7 * 3 * 36 * 20


def test_layers_without_experts_are_variants():
    """DeepSeek's first layers."""
    dense = {"first": ["dense"], "variants": {"dense": {"ffn": {"name": "glu", "width": 23}}}}
    config = tiny(ffn={"name": "moe"}, decoder=dense, layers=3)
    assert not faults(config)
    assert [type(block.ffn).__name__ for block in build_model(config, VOCAB).decoder.blocks] == [
        "GLU",
        *["MixtureOfExperts"] * 2,
    ]


def test_what_a_step_reports_comes_back_to_each_router_and_is_logged():
    from xformer_kit.model.tokens import Tokens

    model = tiny_model(
        ffn={"name": "moe", "router": {"name": "softmax", "correction": 0.5}},
        extra={"future_tokens": {"count": 2}},
    )
    _, report = model.hidden(Tokens(ids=torch.arange(13)[None]), further=True)
    model.after_step(report)
    routers = {name: module for name, module in model.named_modules() if name.endswith("router")}
    assert list(routers) == [
        "decoder.0.ffn.router",
        "decoder.1.ffn.router",
        "decoder.extra.future_tokens.2.ffn.router",
    ]
    for name, router in routers.items():
        load = report[f"{name.removesuffix('router')}load"]
        assert (
            router.correction_bias.tolist() == (0.5 * (load.double().mean() - load).sign()).tolist()
        )
    told = model.figures({name: value for name, value in report.items() if name != "loss"})
    assert told["decoder.extra.future_tokens.2.ffn.load.4"] == pytest.approx(
        report["decoder.extra.future_tokens.2.ffn.load"][4].item() / 26
    )
    assert len(told) == 3 * 6


FAULTS = {
    "experts=0": "experts: must be at least 1 expert; got 0.",
    "top_k=6": "top_k: must be at most ffn.experts; got 6 and 5. Try 5.",
    "top_k=0": "top_k: must be at least 1 expert; got 0.",
    "shared=-1": "shared: must be at least 0 expert; got -1.",
    "shared_gate=true": (
        "shared_gate: weighs what shared experts compute, and there are none; got true. Set"
        " ffn.shared, or false."
    ),
    "expand=2.0": (
        "width: cannot be set beside ffn.expand; got 19 and 2.0. Set one of them to null."
    ),
    "expert={name: moe}": "expert: no expert is called 'moe'. Known: glu, mlp.",
    "expert={name: glu, width: 3}": (
        "expert.width: expert 'glu' has no option 'width'. It has: activation, activated, clamp,"
        " soft_clamp, offset, bias, inner_norm, scales, dropout."
    ),
    "expert={name: glu, clamp: -1.0}": (
        "expert.clamp: must be above 0; got -1.0. null clamps nothing."
    ),
    "router={name: topk}": "router: 'topk' is called 'softmax' here.",
    "router={name: softmax, groups: 3}": (
        "router.groups: must divide ffn.experts; got 3 and 5. Try 1 or 5."
    ),
    "router={name: softmax, group_limit: 2}": (
        "router.group_limit: must be at most ffn.router.groups; got 2 and 1. Try 1."
    ),
    "router={name: softmax, groups: 5}": (
        "router.group_limit: 1 of 5 groups hold 1 experts, and ffn.top_k is 2. Let a token choose"
        " from more groups, or fewer experts."
    ),
    "router={name: sigmoid, groups: 5, group_limit: 2, group_score: top2}": (
        "router.group_score: 'top2' takes two experts of a group, and 5 groups of 5 have one. Try"
        " max."
    ),
    "router={name: softmax, balance: -1.0}": "router.balance: must be at least 0; got -1.0.",
    "router={name: sigmoid, correction: -1.0}": "router.correction: must be at least 0; got -1.0.",
    "router={name: sigmoid, capacity: 0.0}": (
        "router.capacity: must be above 0; got 0.0. null drops no token."
    ),
    "router={name: sigmoid, scale: 0.0}": "router.scale: must be above 0; got 0.0.",
    "router={name: expert_choice, z_loss: -1.0}": "router.z_loss: must be at least 0; got -1.0.",
}


@pytest.mark.parametrize("word", FAULTS)
def test_a_mixture_that_cannot_be_is_answered(word):
    import yaml

    key, _, value = word.partition("=")
    assert messages(faults(tiny(ffn={"name": "moe", key: yaml.safe_load(value)}))) == [
        f"ffn.{FAULTS[word]}"
    ]


@pytest.mark.parametrize("mask", ["causal", "sliding_window", "prefix"])
def test_experts_that_choose_need_texts_that_are_read_whole(mask):
    choice = {"name": "moe", "router": "expert_choice"}
    (fault,) = messages(faults(tiny(ffn=choice, mask=mask)))
    assert (
        fault
        == "ffn: router 'expert_choice' lets an expert choose among all tokens of a text, and mask"
        f" '{mask}' hides the later ones. Use ffn.router.name=softmax, or mask=full in an"
        " encoder."
    )
    assert not faults(tiny("encoder", ffn=choice, mask="full"))
    assert not faults(
        tiny("encoder_decoder", ffn="mlp", encoder={"mask": {"name": "full"}, "ffn": choice})
    )


def test_a_run_of_experts_that_choose_is_refused_once_and_where_it_needs_it():
    from xformer_kit import ConfigError, compose

    with pytest.raises(
        ConfigError, match=r"^ffn: router 'expert_choice' lets an expert choose .*[^\n]$"
    ):
        compose(["ffn=moe", "ffn.router.name=expert_choice"])
    compose(
        [
            "model=encoder",
            "task=masked_language_modeling",
            "ffn=moe",
            "ffn.router.name=expert_choice",
        ]
    )
    words = [
        "model=encoder_decoder",
        "task=seq2seq",
        "model.encoder.ffn={name: moe, router: {name: expert_choice}}",
    ]
    compose(words)
    sentence = (
        "ffn: 'moe' breaks the law of documents (router 'expert_choice': an expert takes the best"
        " tokens of a row, in which texts stand beside each other), which data.documents=true"
        " needs. Choose another ffn.router."
    )
    encoder = ["model=encoder", "task=masked_language_modeling", "data.documents=true"]
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        compose([*encoder, "ffn=moe", "ffn.router.name=expert_choice"])


def test_in_training_a_capacity_hides_no_token_from_earlier_ones_and_no_row_from_others():
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


def test_a_capacity_and_packed_texts_are_refused():
    from xformer_kit import ConfigError, compose

    words = ["data.documents=true", "ffn=moe", "ffn.router.capacity=1.25"]
    sentence = (
        "ffn: 'moe' breaks the law of documents (router 'softmax': in training, an expert that an"
        " earlier text of a row has filled takes none of the next text), which data.documents=true"
        " needs. Choose another ffn.router."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        compose(words)
    compose(words[1:])


def test_an_inner_norm_of_experts_needs_one_that_does_something():
    moe = {"name": "moe", "expert": {"name": "mlp", "inner_norm": True}}
    (fault,) = messages(faults(tiny(ffn=moe, norm="none")))
    assert fault.startswith(
        "ffn: inner_norm takes the norm of model.decoder, and 'none' does nothing."
    )
