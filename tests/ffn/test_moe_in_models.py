"""Mixtures of experts in models: initial weights, weight decay, FLOPs, variants, and the step."""

import pytest
import torch
from torch.testing import assert_close

from xformer_kit.inspect import flops
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import VOCAB
from xformer_kit.model.build import build_model
from xformer_kit.optim import parameter_groups


def tiny_model(**changes):
    return build_model(tiny_config(**changes), VOCAB)


def test_weights_start_as_matrices_of_the_expert_and_biases_at_zero():
    moe = {
        "name": "moe",
        "experts": 64,
        "width": 48,
        "expert": {"name": "mlp", "bias": True},
        "router": {"name": "softmax", "bias": True},
    }
    config = tiny_config(ffn=moe) | {
        "init": {"name": "lecun", "embedding": 0.02, "depth_scaled": True}
    }
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


def test_flops_of_a_token_are_those_of_its_experts():
    """2 n k m for each product: the router, three for each of 2 experts, the weighted sum of those,
    and the shared one.
    """
    moe = {"name": "moe", "experts": 9, "top_k": 2, "width": 20, "shared": 3}
    with torch.device("meta"):
        model = build_model(tiny_config(ffn=moe, layers=1), VOCAB)
    found = flops.count(model, 13)
    assert found.modules["decoder.0.ffn"] == 2 * 36 * (9 + 3 * 2 * 20 + 2 + 3 * 3 * 20)
    assert found.modules["decoder.0.ffn.experts.down"] == 2 * 36 * 2 * 20
    assert model.decoder.blocks[0].ffn.unused() == 7 * 3 * 36 * 20


def test_layers_without_experts_are_variants():
    """The first layers have dense networks, as in DeepSeek-V2."""
    dense = {"first": ["dense"], "variants": {"dense": {"ffn": {"name": "glu", "width": 23}}}}
    config = tiny_config(ffn={"name": "moe"}, decoder=dense, layers=3)
    assert not faults(config)
    assert [type(block.ffn).__name__ for block in build_model(config, VOCAB).decoder.blocks] == [
        "GLU",
        *["MixtureOfExperts"] * 2,
    ]


def test_after_step_gives_each_router_its_load_and_figures_are_logged():
    from xformer_kit.tensors.tokens import Tokens

    model = tiny_model(
        ffn={"name": "moe", "router": {"name": "softmax", "correction": 0.5}},
        extra={"future_tokens": {"count": 2}},
    )
    _, report = model.hidden(Tokens(ids=torch.arange(13)[None]), multi_token=True)
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
    figures = model.figures({name: value for name, value in report.items() if name != "loss"})
    assert figures["decoder.extra.future_tokens.2.ffn.load.4"] == pytest.approx(
        report["decoder.extra.future_tokens.2.ffn.load"][4].item() / 26
    )
    assert len(figures) == 3 * 6
