"""score entmax: the conditions that define it."""

import math

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.scores import KNOWN, SCORED
from xformer_kit.zoo.score.entmax import _entmax_by_bisection, entmax

INF = math.inf


@pytest.mark.parametrize("alpha", [1.05, 1.25, 1.5, 1.75, 2.0, 2.5])
def test_entmax_is_on_the_simplex_and_has_one_threshold(alpha):
    s = torch.cat([SCORED, 30 * SCORED, 0.01 * SCORED, torch.zeros_like(SCORED)])
    p = entmax(s, alpha)
    assert (p >= 0).all()
    assert_close(p.sum(-1), torch.ones_like(p[..., 0]))
    tau = (alpha - 1) * s - p ** (
        alpha - 1
    )  # one number on the support, and no more than it outside
    inside = torch.where(p > 0, tau, torch.nan)
    low, high = (
        (
            inside.nan_to_num(sign * INF).amin(-1)
            if sign > 0
            else inside.nan_to_num(sign * INF).amax(-1)
        )
        for sign in (1, -1)
    )
    assert_close(low, high, atol=1e-6, rtol=1e-6)
    assert (((alpha - 1) * s <= high[..., None] + 1e-6) | (p > 0)).all()


def test_entmax_worked_out():
    assert entmax(torch.tensor([0.5, 0.0]), 2.0).tolist() == [0.75, 0.25]
    assert entmax(torch.tensor([1.0, 0.0, -INF]), 2.0).tolist() == [1, 0, 0]
    assert_close(entmax(torch.tensor([3.0, 3.0, -9.0]), 1.5), torch.tensor([0.5, 0.5, 0.0]))
    assert_close(entmax(SCORED, 1.0001), SCORED.softmax(-1), atol=1e-3, rtol=1e-3)
    assert (entmax(30 * SCORED, 1.5) == 0).any()


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_sorting_and_bisection_agree(alpha):
    x = (alpha - 1) * (SCORED - SCORED.amax(-1, keepdim=True))
    assert_close(entmax(SCORED, alpha), _entmax_by_bisection(x, alpha))


def test_entmax_of_half_precision_is_computed_in_single():
    for dtype in (torch.bfloat16, torch.float16):
        p = entmax(SCORED.to(dtype), 1.5)
        assert p.dtype == dtype
        assert_close(p.float(), entmax(SCORED.to(dtype).float(), 1.5), atol=4e-3, rtol=0)


REFUSED = {
    "attn.score.name=entmx": (
        f"attn.score: no score is called 'entmx'. Did you mean 'entmax'? {KNOWN}"
    ),
    "attn.score.alpha=1.5": (
        "attn.score.alpha: score 'softmax' has no option 'alpha'. It has: softcap, sinks, plus_one."
        " Try attn.score=entmax."
    ),
    "attn.score.name=entmax attn.score.alpha=1": (
        "attn.score.alpha: must be above 1; got 1. At 1 it is softmax: attn.score.name=softmax."
    ),
}


test_refused_configs = refusals(REFUSED)
