"""Mask strided."""

import torch

from tests.masks import pictures
from xformer_kit.mask import (
    ChunkedMask,
    SlidingWindow,
    matrix,
)
from xformer_kit.zoo.mask.dilated import Dilated
from xformer_kit.zoo.mask.fixed import Fixed
from xformer_kit.zoo.mask.strided import Strided

PICTURES = [
    (Strided(stride=3), ["100000", "110000", "111000", "111100", "011110", "001111"]),
    (Strided(stride=2), ["100000", "110000", "111000", "011100", "101110", "010111"]),
]


test_pictures = pictures(PICTURES)


def test_patterns_that_are_not_merged_alternate_between_heads():
    mask = Strided(stride=2, merged=False)
    near, far, again = matrix(mask, 6, heads=3)
    assert torch.equal(near, matrix(SlidingWindow(window=3), 6))
    assert torch.equal(far, matrix(Dilated(step=2), 6))
    assert torch.equal(again, near)
    near, far = matrix(Fixed(stride=3, summary=1, merged=False), 6, heads=2)
    assert torch.equal(near, matrix(ChunkedMask(chunk=3), 6))
    assert torch.equal(far.int(), (torch.arange(6) % 3 == 2).int().expand(6, 6).tril())
