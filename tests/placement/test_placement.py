"""Placements against their equations, written out for one sublayer and for two in parallel."""

import math
from functools import partial

import pytest
import torch
from placements import DIM, F, G, X, equations, group, random_placement, result, unit
from refusals import tiny_refusals
from torch import nn
from torch.testing import assert_close

from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import Composition, build_tiny_model
from xformer_kit.model.init_distributions import INITS
from xformer_kit.placement import PLACEMENTS
from xformer_kit.placement.weighted import deepnorm_factors
from xformer_kit.tensors.tokens import UNKNOWN

# component -> (options, one sublayer, two in parallel), each a function of the component and the
# stream, with m the model's factor
EQUATIONS = {
    "pre": (
        {},
        lambda p, x, m: x + m * F(p.norm[0](x)),
        lambda p, x, m: x + m * (F(p.norm[0](x)) + G(p.norm[0](x))),
    ),
    "post": (
        {},
        lambda p, x, m: p.norm(x + m * F(x)),
        lambda p, x, m: p.norm(x + m * (F(x) + G(x))),
    ),
    "sandwich": (
        {"shared": False},
        lambda p, x, m: x + m * p.after[0](F(p.before[0](x))),
        lambda p, x, m: x + m * (p.after[0](F(p.before[0](x))) + p.after[1](G(p.before[1](x)))),
    ),
    "output": (
        {},
        lambda p, x, m: x + m * p.norm[0](F(x)),
        lambda p, x, m: x + m * (p.norm[0](F(x)) + p.norm[1](G(x))),
    ),
    "pre_and_sum": (
        {"shared": False},
        lambda p, x, m: p.after(x + m * F(p.before[0](x))),
        lambda p, x, m: p.after(x + m * (F(p.before[0](x)) + G(p.before[1](x)))),
    ),
    "deepnorm": (
        {},
        lambda p, x, m: p.norm(8**0.25 * x + m * F(x)),
        lambda p, x, m: p.norm(8**0.25 * x + m * (F(x) + G(x))),
    ),
    "layer_scale": (
        {},
        lambda p, x, m: x + m * p.scale[0].weight * F(p.norm[0](x)),
        lambda p, x, m: (
            x + m * (p.scale[0].weight * F(p.norm[0](x)) + p.scale[1].weight * G(p.norm[0](x)))
        ),
    ),
    "ngpt": (
        {"alpha_init": 0.3, "alpha_scale": 0.1},
        lambda p, x, m: unit(
            unit(x) + m * 3 * p.steps[0].weight.abs() * (unit(F(unit(x))) - unit(x))
        ),
        lambda p, x, m: unit(
            unit(x)
            + m * 3 * p.steps[0].weight.abs() * (unit(F(unit(x))) - unit(x))
            + m * 3 * p.steps[1].weight.abs() * (unit(G(unit(x))) - unit(x))
        ),
    ),
    "none": ({}, lambda p, x, m: x + m * F(x), lambda p, x, m: x + m * (F(x) + G(x))),
}


test_output_is_the_equation_for_one_sublayer_and_for_two = equations(EQUATIONS)


def test_every_placement_is_written_out():
    assert set(EQUATIONS) == {name for name in PLACEMENTS if name not in PLACEMENTS.zoo}


def test_without_a_residual_stream_a_sublayer_is_all_there_is():
    assert_close(result(random_placement("none", ["attn"], residual=False), [F]), 3 * F(F(X)))


@pytest.mark.parametrize(("layers", "start"), [(18, 0.1), (24, 1e-5), (25, 1e-6)])
def test_layer_scale_starts_smaller_in_deeper_models(layers, start):
    component = PLACEMENTS.create(
        "layer_scale", dim=DIM, norm=nn.Identity, layers=layers, parallel=1
    )
    assert_close(component.scale[0].weight.detach(), torch.full((DIM,), start))


def test_layer_norm_scaling_divides_by_the_root_of_the_layer():
    """Layers 1 and 4: 1 / sqrt(4) is a half, and layer 1 is as it was."""
    norm = partial(nn.LayerNorm, DIM, dtype=torch.float64)
    for shared in (True, False):
        create = partial(
            PLACEMENTS.create,
            {"name": "pre", "shared": shared, "depth_scaled": True},
            norm=norm,
            parallel=2,
        )
        for depth, factor in ((0, 1.0), (3, 0.5)):
            h = factor * norm()(X)
            assert_close(create(depth=depth)((X,), group(F, G), UNKNOWN)[0], X + F(h) + G(h))


@torch.no_grad()
def test_layer_norm_scaling_counts_layers_from_the_first_of_a_stack():
    """Its norm after the stack is not scaled, and two layers differ from none by the 1 / sqrt(2)
    of the second.
    """
    case = Composition(tiny_config(placement={"name": "pre", "depth_scaled": True}), "")
    scaled, plain = case.model(), case.model(placement=tiny_config()["placement"])
    for component in plain.decoder.blocks[1].placement.values():
        component.norm[0].weight.mul_(2**-0.5)
    case.assert_close(
        case.hidden(scaled, case.ids),
        case.hidden(plain, case.ids),
        "the second layer reads something else",
        1e-6,
    )


# DeepNorm: figure 2 of the paper.


@pytest.mark.parametrize(
    ("stacks", "stack", "alpha", "beta"),
    [
        ({"decoder": 18}, "decoder", 36**0.25, 144**-0.25),
        ({"encoder": 2}, "encoder", math.sqrt(2), 0.5),
        ({"encoder": 6, "decoder": 6}, "encoder", 0.81 * 6 ** (5 / 16), 0.87 * 6 ** (-5 / 16)),
        (
            {"encoder": 100, "decoder": 3},
            "encoder",
            0.81 * (1e8 * 3) ** (1 / 16),
            0.87 * (1e8 * 3) ** (-1 / 16),
        ),
        ({"encoder": 100, "decoder": 3}, "decoder", math.sqrt(3), 36**-0.25),
    ],
)
def test_the_table_of_deepnorm(stacks, stack, alpha, beta):
    assert deepnorm_factors(stack, stacks) == pytest.approx((alpha, beta))


def test_deepnorm_scales_values_outputs_and_networks():
    plain, deep = (built(placement, "xavier") for placement in ("post", "deepnorm"))
    for name, value in plain.items():
        stack, *_, matrix, kind = name.split(".") if name.count(".") > 1 else ("", "", "")
        factor = 1.0
        if kind == "weight" and matrix in ("v", "o", "up", "down"):
            _, factor = deepnorm_factors(stack, {"encoder": 3, "decoder": 2})
        assert_close(deep[name], value * factor)


def built(placement, init):
    config = tiny_config("encoder_decoder", ffn="mlp", placement=placement, encoder={"layers": 3})
    return build_tiny_model(config | {"init": INITS.defaults(init)}).state_dict()


# What the model does with all that is added.


test_wrong_options_are_refused = tiny_refusals(
    [
        (
            {"extra": {"stochastic_depth": {"rate": 1.0}}},
            r"extra\.stochastic_depth\.rate: must be at least 0 and below 1; got 1\.0\.",
        ),
        (
            {"residual_multiplier": 0.0},
            r"model\.residual_multiplier: must be above 0; got 0\.0\. Try 1\.0\.",
        ),
        (
            {"placement": {"name": "deepnorm", "alpha": 0.0}},
            r"placement\.alpha: must be above 0; got 0\.0\. null is that of the paper\.",
        ),
        (
            {"placement": {"name": "hyper_connections", "streams": 0}},
            r"placement\.streams: must be at least 1 stream; got 0\.",
        ),
        (
            {"placement": {"name": "ngpt", "alpha_init": 0.0}},
            r"placement\.alpha_init: must be above 0; got 0\.0\. Try 0\.05\.",
        ),
        (
            {"placement": {"name": "hyper_connections", "iterations": 3}},
            (
                r"placement\.iterations: belongs to mixing=doubly_stochastic, and mixing is free;"
                r" got \d+\. Leave it null\."
            ),
        ),
        (
            {
                "placement": "hyper_connections",
                "decoder": {
                    "pattern": ["base", "two"],
                    "variants": {"two": {"placement": {"streams": 2}}},
                },
            },
            r"model\.decoder\.variants\.two\.placement: 'hyper_connections' carries 2 streams and"
            r" the stack's "
            r"'hyper_connections' 4 streams; a stack has one kind of residual stream\. Leave it"
            r" out, or give the stack the same "
            r"at placement\.",
        ),
        (
            {
                "placement": {"name": "none", "residual": False},
                "extra": {"stochastic_depth": {"rate": 0.1}},
            },
            (
                r"extra\.stochastic_depth: placement 'none' without residual does not add the"
                r" stream .* leave it out\."
            ),
        ),
    ]
)
