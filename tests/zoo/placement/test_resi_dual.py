"""Placement resi_dual: a normalised stream and a plain one."""

import pytest
from placements import F, G, X, random_placement, result
from torch.testing import assert_close

from xformer_kit.placement import PLACEMENTS


@pytest.mark.parametrize("sublayers", [[F], [F, G]])
def test_resi_dual_carries_a_normalised_and_a_plain_stream(sublayers):
    part = random_placement("resi_dual", ["attn"] * len(sublayers))
    x, dual = X, X
    for _ in range(2):
        added = sum(f(x) for f in sublayers)
        x, dual = part.norm(x + added), dual + added
    assert_close(result(part, sublayers), x + 3 * dual)
    assert PLACEMENTS["resi_dual"].streams({}) == 2
