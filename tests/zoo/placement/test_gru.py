"""Placement gru: section 3.2 of GTrXL."""

import math

import pytest
import torch
from placements import DIM, F, G, X, equations, group, random_placement
from torch import nn
from torch.testing import assert_close

from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import build_tiny_model
from xformer_kit.placement import PLACEMENTS
from xformer_kit.tensors.tokens import UNKNOWN


def gated(p, x, y):
    """Section 3.2 of GTrXL, with y the output after its ReLU."""
    r = torch.sigmoid(y @ p.w_r.weight.T + x @ p.u_r.weight.T)
    z = torch.sigmoid(y @ p.w_z.weight.T + x @ p.u_z.weight.T - p.bias)
    return (1 - z) * x + z * torch.tanh(y @ p.w_g.weight.T + (r * x) @ p.u_g.weight.T)


EQUATIONS = {
    "gru": (
        {"shared": False},
        lambda p, x, m: gated(p.gate, x, m * F(p.norm[0](x)).relu()),
        lambda p, x, m: gated(p.gate, x, m * (F(p.norm[0](x)).relu() + G(p.norm[1](x)).relu())),
    ),
}


test_output_is_the_equation_for_one_sublayer_and_for_two = equations(EQUATIONS)


def test_the_gate_is_the_cell_of_x_transformers_where_both_reset_alike():
    """Theirs resets U_g x, the paper x: the same where U_g is diagonal. Their z is 1 - z."""
    theirs = pytest.importorskip("x_transformers.x_transformers").GRUGating(DIM).double()
    part = random_placement("gru", ["attn"], relu=False)
    gate = part.gate
    with torch.no_grad():
        gate.u_g.weight.copy_(gate.u_g.weight.diag().diag())
        theirs.gru.weight_ih.copy_(torch.cat([gate.w_r.weight, -gate.w_z.weight, gate.w_g.weight]))
        theirs.gru.weight_hh.copy_(torch.cat([gate.u_r.weight, -gate.u_z.weight, gate.u_g.weight]))
        theirs.gru.bias_ih.copy_(torch.cat([torch.zeros(DIM), gate.bias, torch.zeros(DIM)]))
        theirs.gru.bias_hh.zero_()
    assert_close(part((X,), group(F), UNKNOWN)[0], theirs(F(part.norm[0](X)), X))


def test_a_gate_without_matrices_keeps_the_share_sigmoid_of_its_bias():
    part = PLACEMENTS.create(
        {"name": "gru", "bias": 2.0}, dim=DIM, norm=nn.Identity, parallel=1
    ).double()
    for matrix in ("w_r", "w_z", "w_g", "u_r", "u_z", "u_g"):
        nn.init.zeros_(getattr(part.gate, matrix).weight)
    assert_close(part((X,), group(F), UNKNOWN)[0], X / (1 + math.exp(-2.0)))


def test_a_model_starts_with_the_configured_bias_of_the_gate():
    config = tiny_config(placement={"name": "gru", "bias": 1.5})
    state = build_tiny_model(config).state_dict()
    assert_close(state["decoder.1.placement.ffn.gate.bias"], torch.full((36,), 1.5))
