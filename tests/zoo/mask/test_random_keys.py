"""Mask random_keys: what is drawn."""

import torch
from refusals import refusals

from xformer_kit.mask import (
    Causal,
    matrix,
)
from xformer_kit.zoo.mask.random_keys import RandomKeys


def test_keys_are_drawn_with_their_probabilities():
    """Of 199 pairs at distance 1 and 19,701 further ones as many as 0.5 and 0.1 make, within 4
    deviations.
    """
    mask = RandomKeys(probabilities=(1.0, 0.5, 0.1), causal=False)
    seen = matrix(mask, 200)
    assert seen.diagonal().all()
    near, far = seen.diagonal(1), seen.triu(2)
    assert abs(near.sum() - 99.5) < 4 * (199 * 0.25) ** 0.5
    assert abs(far.sum() - 1970.1) < 4 * (19701 * 0.09) ** 0.5
    assert torch.equal(matrix(mask, 90), seen[:90, :90])  # a longer text changes nothing
    assert not torch.equal(
        matrix(RandomKeys(probabilities=(1.0, 0.5, 0.1), seed=1, causal=False), 200), seen
    )
    heads = matrix(RandomKeys(alike=False), 64, heads=3)
    assert len({tuple(head.flatten().tolist()) for head in heads}) == 3
    assert matrix(RandomKeys(probabilities=(1.0,)), 9).equal(matrix(Causal(), 9))
    assert not matrix(RandomKeys(probabilities=(0.0,)), 9).any()


REFUSED = {
    ("mask=random_keys mask.probabilities=[1.5]"): (
        "mask.probabilities: must list at least one number from 0 to 1; got [1.5]. Try [1.0, 0.5]."
    ),
    ("mask=random_keys mask.probabilities=[0.0]"): (
        "mask.probabilities: must not all be 0, or no token sees any; got [0.0]. Try [1.0, 0.5]."
    ),
}


test_refused_configs = refusals(REFUSED)
