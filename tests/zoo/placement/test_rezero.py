"""Placement rezero: its equation."""

import pytest
import torch
from placing import F, G, X, made, result, twice
from torch.testing import assert_close

from xformer_kit.model.tokens import UNKNOWN
from xformer_kit.placement import PLACEMENTS


def gated(p, x, y):
    """Section 3.2 of GTrXL, with y the output behind its ReLU."""
    r = torch.sigmoid(y @ p.w_r.weight.T + x @ p.u_r.weight.T)
    z = torch.sigmoid(y @ p.w_z.weight.T + x @ p.u_z.weight.T - p.bias)
    return (1 - z) * x + z * torch.tanh(y @ p.w_g.weight.T + (r * x) @ p.u_g.weight.T)


EQUATIONS = {
    "rezero": (
        {},
        lambda p, x, m: x + m * p.alpha[0] * F(x),
        lambda p, x, m: x + m * (p.alpha[0] * F(x) + p.alpha[1] * G(x)),
    ),
}


@pytest.mark.parametrize("factor", [1.0, 0.3])
@pytest.mark.parametrize("name", EQUATIONS)
def test_a_placement_is_its_equation_for_one_sublayer_and_for_two(name, factor):
    options, one, two = EQUATIONS[name]
    for kinds, sublayers, equation in ((["attn"], [F], one), (["attn", "ffn"], [F, G], two)):
        part = made(name, kinds, **options)
        expected = twice(lambda x: equation(part, x, factor))  # noqa: B023
        assert_close(result(part, sublayers, factor), 3 * expected)


def test_rezero_starts_as_the_identity():
    part = PLACEMENTS.create("rezero", parallel=2)
    assert torch.equal(part((X,), [F, G], sum, UNKNOWN)[0], X)
