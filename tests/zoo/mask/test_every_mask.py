"""Masks of the zoo, each as FlexAttention computes it, and in the algebra."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

from xformer_kit.laws import LAWS, tiny
from xformer_kit.mask import (
    INF,
    MASKS,
    Causal,
    Chunked,
    GlobalTokens,
    PerHead,
    SlidingWindow,
    matrix,
)
from xformer_kit.model.tokens import Tokens
from xformer_kit.zoo.mask.dilated import Dilated
from xformer_kit.zoo.mask.fixed import Fixed
from xformer_kit.zoo.mask.random_blocks import RandomBlocks
from xformer_kit.zoo.mask.random_keys import RandomKeys
from xformer_kit.zoo.mask.strided import Strided


def test_patterns_that_are_not_merged_stand_in_every_other_head():
    mask = Strided(stride=2, merged=False)
    near, far, again = matrix(mask, 6, heads=3)
    assert torch.equal(near, matrix(SlidingWindow(window=3), 6))
    assert torch.equal(far, matrix(Dilated(step=2), 6))
    assert torch.equal(again, near)
    near, far = matrix(Fixed(stride=3, summary=1, merged=False), 6, heads=2)
    assert torch.equal(near, matrix(Chunked(chunk=3), 6))
    assert torch.equal(far.int(), (torch.arange(6) % 3 == 2).int().expand(6, 6).tril())


@pytest.mark.parametrize(
    ("mask", "band"),
    [
        (Dilated(step=1), (INF, 0)),
        (Dilated(step=1, causal=False), (INF, INF)),
        (Dilated(step=1, window=3, causal=False), (2, 2)),
        (Dilated(step=2), None),
    ],
    ids=str,
)
def test_bands(mask, band):
    assert mask.band() == band


@pytest.mark.parametrize(
    ("mask", "future", "prefix", "per_head", "absolute"),
    [
        (Dilated() | GlobalTokens(), False, False, False, True),
        (Dilated() | SlidingWindow(), False, False, False, False),
        (Strided(merged=False) & Causal(), False, False, True, False),
    ],
    ids=str,
)
def test_what_a_mask_says_of_itself_is_combined_by_the_algebra(
    mask, future, prefix, per_head, absolute
):
    assert (mask.sees_future, mask.sees_prefix, mask.per_head, mask.absolute) == (
        future,
        prefix,
        per_head,
        absolute,
    )


EXAMPLES = [
    Dilated(),
    Dilated(step=2, window=2, causal=False),
    Strided(stride=2),
    Fixed(stride=3, summary=1),
    RandomBlocks(block=2, count=2),
    RandomBlocks(block=3, alike=False),
    Strided(stride=3, merged=False),
    Fixed(stride=4, summary=2, merged=False),
    PerHead((Causal(), Dilated())),
    SlidingWindow(window=2) | GlobalTokens() | RandomBlocks(block=2),
    RandomKeys(alike=False),
]


@pytest.mark.parametrize("mask", EXAMPLES, ids=str)
def test_flex_attention_sees_the_same(mask):
    batch, heads, length = 2, 4, 13
    position = torch.stack([torch.arange(length), (torch.arange(length) - 3).clamp(min=0)])
    prefix = torch.arange(length) < torch.tensor([[2], [5]])
    tokens = Tokens(slot=torch.arange(length).expand(batch, -1), position=position, prefix=prefix)

    def of(b, h, q, k):
        return mask.allows(
            tokens.map(lambda field: field[b, q]), tokens.map(lambda field: field[b, k]), h
        )

    expected = mask.allows(
        tokens.as_query(), tokens.as_key(), torch.arange(heads).view(1, -1, 1, 1)
    )
    expected = expected.expand(batch, heads, length, length)
    assert torch.equal(create_mask(of, batch, heads, length, length, device="cpu"), expected)


def test_every_registered_mask_is_among_the_examples():
    assert {MASKS[name] for name in MASKS.zoo} <= {type(mask) for mask in EXAMPLES}


@pytest.mark.parametrize(
    "mask",
    [
        "strided",
        {"name": "random_keys", "causal": False},
    ],
)
def test_encoders_keep_the_laws(mask):
    for law in ("padding", "documents", "kernels", "mask"):
        assert LAWS[law](tiny(model="encoder", mask=mask)) is None
