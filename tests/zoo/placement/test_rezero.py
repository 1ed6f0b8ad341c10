"""Placement rezero: its equation."""

import torch
from placements import F, G, X, equations, group

from xformer_kit.placement import PLACEMENTS
from xformer_kit.tensors.tokens import UNKNOWN

EQUATIONS = {
    "rezero": (
        {},
        lambda p, x, m: x + m * p.alpha[0] * F(x),
        lambda p, x, m: x + m * (p.alpha[0] * F(x) + p.alpha[1] * G(x)),
    ),
}


test_output_is_the_equation_for_one_sublayer_and_for_two = equations(EQUATIONS)


def test_rezero_starts_as_the_identity():
    part = PLACEMENTS.create("rezero", parallel=2)
    assert torch.equal(part((X,), group(F, G), UNKNOWN)[0], X)
