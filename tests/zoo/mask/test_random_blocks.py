"""Mask random_blocks: what is drawn."""

import torch
from refusals import refusals

from xformer_kit.mask import (
    Causal,
    matrix,
)
from xformer_kit.tensors.tokens import Tokens
from xformer_kit.zoo.mask.random_blocks import RandomBlocks


def test_random_blocks_draw_among_the_past_and_depend_only_on_the_seed():
    mask = RandomBlocks(block=2, count=2)
    seen = matrix(mask, 64)
    blocks = matrix(RandomBlocks(block=2, count=2, causal=False), 64)[::2, ::2]  # 32 x 32 blocks
    assert torch.equal(
        seen, blocks.repeat_interleave(2, 0).repeat_interleave(2, 1) & matrix(Causal(), 64)
    )
    drawn = blocks.tril().sum(-1)
    assert drawn.min() == 1
    assert drawn.max() == 2  # as many as are drawn, and fewer where one is drawn twice
    assert torch.equal(blocks, blocks.t())
    assert torch.equal(matrix(mask, 30), seen[:30, :30])  # a longer text changes nothing
    assert not torch.equal(matrix(RandomBlocks(block=2, count=2, seed=1), 64), seen)
    assert mask == RandomBlocks(block=2, count=2, seed=0)
    heads = matrix(RandomBlocks(block=2, count=2, alike=False), 64, heads=3)
    assert len({tuple(head.flatten().tolist()) for head in heads}) == 3


def test_the_blocks_that_are_drawn_are_spread_evenly():
    """Of 2,000 seeds, block 7 draws each of the 8 that it may about 250 times: chi-squared with 7
    degrees, 99.9 %: 24.3.
    """
    tokens = Tokens(slot=torch.arange(8)[None], position=torch.arange(8)[None])
    query, key = tokens.map(lambda field: field[:, 7:]).as_query(), tokens.as_key()
    head = torch.zeros(1, 1, 1, 1, dtype=torch.long)
    counts = sum(
        RandomBlocks(block=1, count=1, seed=seed).allows(query, key, head).flatten().int()
        for seed in range(2000)
    )
    assert counts.sum() == 2000
    assert ((counts - 250) ** 2 / 250).sum() < 24.3


REFUSED = {
    "mask=random_blocks mask.count=0": "mask.count: must be at least 1; got 0.",
}


test_refused_configs = refusals(REFUSED)
