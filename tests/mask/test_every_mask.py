"""What holds for every mask: its band and traits, FlexAttention, and the laws of encoders."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.mask import (
    INF,
    MASKS,
    Causal,
    ChunkedMask,
    Full,
    GlobalTokens,
    PerHead,
    Prefix,
    SlidingWindow,
)
from xformer_kit.tensors.tokens import Tokens
from xformer_kit.zoo.mask.dilated import Dilated
from xformer_kit.zoo.mask.fixed import Fixed
from xformer_kit.zoo.mask.random_blocks import RandomBlocks
from xformer_kit.zoo.mask.random_keys import RandomKeys
from xformer_kit.zoo.mask.strided import Strided


@pytest.mark.parametrize(
    ("mask", "band"),
    [
        (SlidingWindow(window=4, causal=False), (3, 3)),
        (PerHead((Causal(), Causal())), (INF, 0)),
        (PerHead((Causal(), SlidingWindow())), None),
        (ChunkedMask() & Causal(), None),
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
    ("mask", "future", "prefix", "per_head"),
    [
        (ChunkedMask(), False, False, False),
        (ChunkedMask(causal=False), True, False, False),
        (ChunkedMask(causal=False) & Causal(), False, False, False),
        (ChunkedMask() | Full(), True, False, False),
        (~ChunkedMask(), True, False, False),
        (PerHead((Causal(), Prefix())), False, True, True),
        (PerHead((Causal(), Full())), True, False, True),
        (PerHead((Causal(), Causal())), False, False, False),
        (~PerHead((Causal(), Full())), True, False, True),
        (Dilated() | GlobalTokens(), False, False, False),
        (Dilated() | SlidingWindow(), False, False, False),
        (Strided(merged=False) & Causal(), False, False, True),
    ],
    ids=str,
)
def test_traits_are_combined_by_the_algebra(mask, future, prefix, per_head):
    assert (mask.sees_future, mask.sees_prefix, mask.per_head) == (
        future,
        prefix,
        per_head,
    )


EXAMPLES = [
    SlidingWindow(window=2, causal=False),
    ChunkedMask(chunk=3),
    ChunkedMask(chunk=4, causal=False),
    GlobalTokens(count=2),
    GlobalTokens(causal=False),
    Full(),
    Causal(),
    Prefix(),
    SlidingWindow(window=3),
    PerHead((Causal(), ChunkedMask(chunk=4), Full()), groups=(1, 1, 2)),
    Causal() & ~SlidingWindow(window=3),
    SlidingWindow(window=2) | GlobalTokens(),
    ChunkedMask(chunk=(2, 4)),
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
def test_flex_attention_computes_the_same(mask):
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
    missing = set(MASKS.values()) - {type(mask) for mask in EXAMPLES}
    assert missing == {MASKS["not"]}  # which ~ makes


LONGFORMER = {
    "name": "any_of",
    "of": [
        {"name": "sliding_window", "window": 2, "causal": False},
        {"name": "global_tokens", "causal": False},
    ],
}


@pytest.mark.parametrize(
    "mask",
    [
        LONGFORMER,
        {"name": "chunked", "causal": False},
        "strided",
        {"name": "random_keys", "causal": False},
    ],
)
def test_encoders_keep_the_laws(mask):
    for law in ("padding", "documents", "kernels", "mask"):
        assert LAWS[law](tiny_config(model="encoder", mask=mask)) is None
