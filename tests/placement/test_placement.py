"""Placements against their equations, written out for one sublayer and for two in parallel."""

import math
import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from xformer_kit.laws import faults, tiny
from xformer_kit.laws.case import Case
from xformer_kit.laws.case import made as make
from xformer_kit.model.init import INITS, deepnet
from xformer_kit.model.tokens import UNKNOWN
from xformer_kit.optim import parameter_groups
from xformer_kit.placement import PLACEMENTS

DIM = 7
X = torch.randn(2, 3, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
F, G = (nn.Linear(DIM, DIM).double() for _ in range(2))
torch.manual_seed(4)
for layer in (F, G):
    nn.init.normal_(layer.weight)


def made(name, kinds, **options):
    """A placement over layer norms, with every parameter drawn."""
    part = PLACEMENTS.create(
        {"name": name, **options},
        dim=DIM,
        norm=lambda: nn.LayerNorm(DIM),
        depth=1,
        layers=4,
        order=2,
        parallel=len(kinds),
        kinds=kinds,
        stack="decoder",
        stacks={"decoder": 4},
    )
    draw = torch.Generator().manual_seed(1)
    for parameter in part.parameters():
        nn.init.normal_(parameter, mean=float(parameter.ndim < 2), generator=draw)
    return part.double()


def result(part, sublayers, factor=1.0, finish=True):
    state = part(
        part.start(X, part.states), sublayers, lambda outputs: factor * sum(outputs), UNKNOWN
    )
    state = part(
        state, sublayers, lambda outputs: factor * sum(outputs), UNKNOWN
    )  # twice, so that each stream is read
    return part.finish(state, lambda x: 3 * x) if finish else state


def twice(step):
    return step(step(X))


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def gated(p, x, y):
    """Section 3.2 of GTrXL, with y the output behind its ReLU."""
    r = torch.sigmoid(y @ p.w_r.weight.T + x @ p.u_r.weight.T)
    z = torch.sigmoid(y @ p.w_z.weight.T + x @ p.u_z.weight.T - p.bias)
    return (1 - z) * x + z * torch.tanh(y @ p.w_g.weight.T + (r * x) @ p.u_g.weight.T)


# part -> (options, one sublayer, two in parallel), each a function of the part and the stream, with
# m the model's factor
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
    "deep": (
        {},
        lambda p, x, m: p.norm(8**0.25 * x + m * F(x)),
        lambda p, x, m: p.norm(8**0.25 * x + m * (F(x) + G(x))),
    ),
    "rezero": (
        {},
        lambda p, x, m: x + m * p.alpha[0] * F(x),
        lambda p, x, m: x + m * (p.alpha[0] * F(x) + p.alpha[1] * G(x)),
    ),
    "layer_scale": (
        {},
        lambda p, x, m: x + m * p.scale[0].weight * F(p.norm[0](x)),
        lambda p, x, m: (
            x + m * (p.scale[0].weight * F(p.norm[0](x)) + p.scale[1].weight * G(p.norm[0](x)))
        ),
    ),
    "gru": (
        {"shared": False},
        lambda p, x, m: gated(p.gate, x, m * F(p.norm[0](x)).relu()),
        lambda p, x, m: gated(p.gate, x, m * (F(p.norm[0](x)).relu() + G(p.norm[1](x)).relu())),
    ),
    "sphere": (
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


STREAMS = "gated_streams", "mv_split", "orthogonal", "reversible"  # see test_streams.py


@pytest.mark.parametrize("factor", [1.0, 0.3])
@pytest.mark.parametrize("name", EQUATIONS)
def test_a_placement_is_its_equation_for_one_sublayer_and_for_two(name, factor):
    options, one, two = EQUATIONS[name]
    for kinds, sublayers, equation in ((["attn"], [F], one), (["attn", "ffn"], [F, G], two)):
        part = made(name, kinds, **options)
        expected = twice(lambda x: equation(part, x, factor))  # noqa: B023
        assert_close(result(part, sublayers, factor), 3 * expected)


def test_every_placement_is_written_out():
    earlier = {"aggregated", "dense_former", "lime"}
    assert set(EQUATIONS) | {
        "resi_dual",
        "normformer",
        "hyper_connections",
        *earlier,
        *STREAMS,
    } == set(PLACEMENTS)


@pytest.mark.parametrize("sublayers", [[F], [F, G]])
def test_resi_dual_carries_a_normalised_and_a_plain_stream(sublayers):
    part = made("resi_dual", ["attn"] * len(sublayers))
    x, dual = X, X
    for _ in range(2):
        added = sum(f(x) for f in sublayers)
        x, dual = part.norm(x + added), dual + added
    assert_close(result(part, sublayers), x + 3 * dual)
    assert PLACEMENTS["resi_dual"].states == 2


def test_normformer_has_a_norm_behind_attention_alone():
    attention, network, both = (
        made("normformer", kinds) for kinds in (["attn"], ["ffn"], ["attn", "ffn"])
    )
    assert_close(
        attention((X,), [F], sum, UNKNOWN)[0], X + attention.after[0](F(attention.before[0](X)))
    )
    assert_close(network((X,), [F], sum, UNKNOWN)[0], X + F(network.before[0](X)))
    h = both.before[0](X)
    assert_close(both((X,), [F, G], sum, UNKNOWN)[0], X + both.after[0](F(h)) + G(h))
    scaled = made("normformer", ["ffn"], scale_residual=True)
    assert_close(
        scaled((X,), [F], sum, UNKNOWN)[0], scaled.stream.weight * X + F(scaled.before[0](X))
    )
    assert not hasattr(
        made("normformer", ["attn"], scale_residual=True).stream, "weight"
    )  # of networks alone


def test_without_a_residual_stream_a_sublayer_is_all_there_is():
    assert_close(result(made("none", ["attn"], residual=False), [F]), 3 * F(F(X)))


@pytest.mark.parametrize(("layers", "start"), [(18, 0.1), (24, 1e-5), (25, 1e-6)])
def test_layer_scale_starts_smaller_in_deeper_models(layers, start):
    part = PLACEMENTS.create("layer_scale", dim=DIM, norm=nn.Identity, layers=layers, parallel=1)
    assert_close(part.scale[0].weight.detach(), torch.full((DIM,), start))


def test_rezero_starts_as_the_identity():
    part = PLACEMENTS.create("rezero", parallel=2)
    assert torch.equal(part((X,), [F, G], sum, UNKNOWN)[0], X)


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
            assert_close(create(depth=depth)((X,), [F, G], sum, UNKNOWN)[0], X + F(h) + G(h))


@torch.no_grad()
def test_layer_norm_scaling_counts_layers_from_the_first_of_a_stack():
    """Its norm behind the stack is not scaled, and two layers differ from none by the 1 / sqrt(2)
    of the second.
    """
    case = Case(tiny(placement={"name": "pre", "depth_scaled": True}), "")
    scaled, plain = case.model(), case.model(placement=tiny()["placement"])
    for part in plain.decoder.blocks[1].placement.values():
        part.norm[0].weight.mul_(2**-0.5)
    case.same(
        case.read(scaled, case.ids),
        case.read(plain, case.ids),
        "the second layer reads something else",
        1e-6,
    )


# Hyper-connections: sections 2.1 to 2.3 of the paper.


def connected(p, h, sublayers, m):
    """Eq. 2 and 10 to 13, as matrices (b, t, n, .) of the streams h (b, t, n, d)."""
    n = h.shape[-2]
    a, b = p.alpha, p.beta[:, None]
    if p.dynamic is not None:
        own = torch.tanh(p.each(h) @ p.dynamic.T)
        a, b = a + p.scale[0] * own[..., : n + 1], b + p.scale[1] * own[..., n + 1 :]
    a_m, a_r = a[..., :1], a[..., 1:]
    read = (a_m.mT @ h)[..., 0, :]
    written = m * sum(f(p.norm[0](read)) for f in sublayers)
    return a_r.mT @ h + b * written[..., None, :]


@pytest.mark.parametrize("sublayers", [[F], [F, G]])
@pytest.mark.parametrize(("streams", "dynamic"), [(1, True), (3, True), (4, False)])
def test_hyper_connections_are_their_matrices(streams, dynamic, sublayers):
    part = made("hyper_connections", ["attn"] * len(sublayers), streams=streams, dynamic=dynamic)
    h = X[..., None, :].expand(-1, -1, streams, -1)
    for _ in range(2):
        h = connected(part, h, sublayers, 0.3)
    assert_close(result(part, sublayers, 0.3), 3 * h.sum(-2))
    assert_close(torch.stack(result(part, sublayers, 0.3, finish=False), -2), h)


@torch.no_grad()
@pytest.mark.parametrize("options", [{"streams": 3}, {"streams": 2, "dynamic": False}])
def test_a_model_of_hyper_connections_starts_as_one_with_pre(options):
    """Eq. 14: all streams are then one, and their sum is n of it."""
    plain, several = (
        tiny(placement=node, final_norm=False)
        for node in ("pre", {"name": "hyper_connections", **options})
    )
    case = Case(plain, "")
    expected, sums = (
        case.read(make(config).double().eval(), case.ids) for config in (plain, several)
    )
    assert_close(sums, options["streams"] * expected)


def test_sublayers_start_by_reading_one_stream_after_another():
    """Two layers of attention and a network with three streams: 0, 1, 2, and 0 again."""
    model = make(tiny(placement={"name": "hyper_connections", "streams": 3}))
    read = [
        part.alpha[:, 0].tolist()
        for block in model.decoder.blocks
        for part in block.placement.values()
    ]
    assert read == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_what_hyper_connections_share_among_tokens_does_not_decay():
    model = make(tiny(placement="hyper_connections", layers=1))
    decayed, free = parameter_groups(model, 0.1)
    names = [
        {name.rsplit(".", 1)[-1] for name, _ in g["params"] if ".placement." in name}
        for g in (decayed, free)
    ]
    assert names == [{"dynamic"}, {"alpha", "beta", "scale", "weight"}]


# GTrXL: section 3.2.


def test_the_gate_is_the_cell_of_x_transformers_where_both_reset_alike():
    """Theirs resets U_g x, the paper x: the same where U_g is diagonal. Their z is 1 - z."""
    theirs = pytest.importorskip("x_transformers.x_transformers").GRUGating(DIM).double()
    part = made("gru", ["attn"], relu=False)
    gate = part.gate
    with torch.no_grad():
        gate.u_g.weight.copy_(gate.u_g.weight.diag().diag())
        theirs.gru.weight_ih.copy_(torch.cat([gate.w_r.weight, -gate.w_z.weight, gate.w_g.weight]))
        theirs.gru.weight_hh.copy_(torch.cat([gate.u_r.weight, -gate.u_z.weight, gate.u_g.weight]))
        theirs.gru.bias_ih.copy_(torch.cat([torch.zeros(DIM), gate.bias, torch.zeros(DIM)]))
        theirs.gru.bias_hh.zero_()
    assert_close(part((X,), [F], sum, UNKNOWN)[0], theirs(F(part.norm[0](X)), X))


def test_a_gate_without_matrices_keeps_the_share_that_its_bias_says():
    part = PLACEMENTS.create(
        {"name": "gru", "bias": 2.0}, dim=DIM, norm=nn.Identity, parallel=1
    ).double()
    for matrix in ("w_r", "w_z", "w_g", "u_r", "u_z", "u_g"):
        nn.init.zeros_(getattr(part.gate, matrix).weight)
    assert_close(part((X,), [F], sum, UNKNOWN)[0], X / (1 + math.exp(-2.0)))


def test_a_model_starts_with_the_gates_bias_that_is_said():
    config = tiny(placement={"name": "gru", "bias": 1.5})
    state = make(config).state_dict()
    assert_close(state["decoder.1.placement.ffn.gate.bias"], torch.full((36,), 1.5))


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
def test_the_table_of_deepnet(stacks, stack, alpha, beta):
    assert deepnet(stack, stacks) == pytest.approx((alpha, beta))


def test_deepnet_scales_values_outputs_and_networks_once():

    plain, deep, init = (
        built(placement, init)
        for placement, init in (("post", "xavier"), ("deep", "xavier"), ("post", "deepnet"))
    )
    both = built("deep", "deepnet")
    for name, value in plain.items():
        stack, *_, matrix, kind = name.split(".") if name.count(".") > 1 else ("", "", "")
        factor = 1.0
        if kind == "weight" and matrix in ("v", "o", "up", "down"):
            factor = deepnet(stack, {"encoder": 3, "decoder": 2}).beta
        for other in (deep, init, both):
            assert_close(other[name], value * factor)


def built(placement, init):
    config = tiny("encoder_decoder", ffn="mlp", placement=placement, encoder={"layers": 3})
    return make(config | {"init": INITS.defaults(init)}).state_dict()


# What the model does with all that is added.


@pytest.mark.parametrize(
    ("changes", "sentence"),
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
            {"placement": {"name": "deep", "alpha": 0.0}},
            r"placement\.alpha: must be above 0; got 0\.0\. null is that of the paper\.",
        ),
        (
            {"placement": {"name": "hyper_connections", "streams": 0}},
            r"placement\.streams: must be at least 1 stream; got 0\.",
        ),
        (
            {"placement": {"name": "sphere", "alpha_init": 0.0}},
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
                r"extra\.stochastic_depth: placement 'none' without residual adds nothing .* leave"
                r" it out\."
            ),
        ),
    ],
)
def test_what_cannot_be_is_answered(changes, sentence):
    (fault,) = faults(tiny(**changes))
    assert re.fullmatch(sentence, fault)
