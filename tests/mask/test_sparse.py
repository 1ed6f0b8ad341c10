"""Masks with gaps, by eye, and each as FlexAttention asks it."""

import pytest
import torch
from refusing import refused
from torch.nn.attention.flex_attention import create_mask

from xformer_kit.config import compose
from xformer_kit.laws import LAWS, faults, tiny
from xformer_kit.mask import (
    INF,
    MASKS,
    Causal,
    Chunked,
    Dilated,
    Fixed,
    Full,
    GlobalTokens,
    PerHead,
    Prefix,
    RandomBlocks,
    RandomKeys,
    SlidingWindow,
    Strided,
    matrix,
)
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import ConfigError


def rows(mask, length=6, heads=1):
    picture = matrix(mask, length, heads).int()
    return ["".join(map(str, row)) for row in picture.flatten(0, -2).tolist()]


BY_EYE = [
    (
        SlidingWindow(window=2, causal=False),
        ["110000", "111000", "011100", "001110", "000111", "000011"],
    ),
    (Dilated(step=2), ["100000", "010000", "101000", "010100", "101010", "010101"]),
    (Dilated(step=2, window=2), ["100000", "010000", "101000", "010100", "001010", "000101"]),
    (Dilated(step=3, causal=False), ["100100", "010010", "001001", "100100", "010010", "001001"]),
    (
        Dilated(step=2, window=2, causal=False),
        ["101000", "010100", "101010", "010101", "001010", "000101"],
    ),
    (Chunked(chunk=3), ["100000", "110000", "111000", "000100", "000110", "000111"]),
    (Chunked(chunk=4, causal=False), ["111100", "111100", "111100", "111100", "000011", "000011"]),
    (GlobalTokens(count=2), ["100000", "110000", "110000", "110000", "110000", "110000"]),
    (GlobalTokens(causal=False), ["111111", "100000", "100000", "100000", "100000", "100000"]),
    (Strided(stride=3), ["100000", "110000", "111000", "111100", "011110", "001111"]),
    (Strided(stride=2), ["100000", "110000", "111000", "011100", "101110", "010111"]),
    (Fixed(stride=3, summary=1), ["100000", "110000", "111000", "001100", "001110", "001111"]),
    (
        Fixed(stride=3, summary=1, causal=False),
        ["111001", "111001", "111001", "001111", "001111", "001111"],
    ),
]


@pytest.mark.parametrize(
    ("mask", "expected"),
    BY_EYE,
    ids=lambda value: str(value) if not isinstance(value, list) else "",
)
def test_by_eye(mask, expected):
    assert rows(mask) == expected


def test_patterns_that_are_not_merged_stand_in_every_other_head():
    mask = Strided(stride=2, merged=False)
    near, far, again = matrix(mask, 6, heads=3)
    assert torch.equal(near, matrix(SlidingWindow(window=3), 6))
    assert torch.equal(far, matrix(Dilated(step=2), 6))
    assert torch.equal(again, near)
    near, far = matrix(Fixed(stride=3, summary=1, merged=False), 6, heads=2)
    assert torch.equal(near, matrix(Chunked(chunk=3), 6))
    assert torch.equal(far.int(), (torch.arange(6) % 3 == 2).int().expand(6, 6).tril())


def test_heads_look_through_masks_of_their_own():
    groups = PerHead((Causal(), SlidingWindow(window=1)), groups=(1, 2))
    assert rows(groups, 3, heads=3) == [
        "100",
        "110",
        "111",
        "100",
        "010",
        "001",
        "100",
        "010",
        "001",
    ]
    turns = PerHead((Causal(), SlidingWindow(window=1)))
    assert rows(turns, 3, heads=3) == [
        "100",
        "110",
        "111",
        "100",
        "010",
        "001",
        "100",
        "110",
        "111",
    ]


@pytest.mark.parametrize(
    ("mask", "band"),
    [
        (SlidingWindow(window=4, causal=False), (3, 3)),
        (Dilated(step=1), (INF, 0)),
        (Dilated(step=1, causal=False), (INF, INF)),
        (Dilated(step=1, window=3, causal=False), (2, 2)),
        (Dilated(step=2), None),
        (PerHead((Causal(), Causal())), (INF, 0)),
        (PerHead((Causal(), SlidingWindow())), None),
        (Chunked() & Causal(), None),
    ],
    ids=str,
)
def test_bands(mask, band):
    assert mask.band() == band


@pytest.mark.parametrize(
    ("mask", "future", "prefix", "per_head", "absolute"),
    [
        (Chunked(), False, False, False, True),
        (Chunked(causal=False), True, False, False, True),
        (Chunked(causal=False) & Causal(), False, False, False, True),
        (Chunked() | Full(), True, False, False, True),
        (~Chunked(), True, False, False, True),
        (Dilated() | GlobalTokens(), False, False, False, True),
        (Dilated() | SlidingWindow(), False, False, False, False),
        (Strided(merged=False) & Causal(), False, False, True, False),
        (PerHead((Causal(), Prefix())), False, True, True, False),
        (PerHead((Causal(), Full())), True, False, True, False),
        (PerHead((Causal(), Causal())), False, False, False, False),
        (~PerHead((Causal(), Full())), True, False, True, False),
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


def test_random_blocks_draw_among_the_past_and_depend_on_the_seed_alone():
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


def test_chunks_of_several_sizes():
    first = [0, 1, 1, 1, 2, 2, 3, 3, 4]  # sizes 1, 3, 2, 2, ...
    same = torch.tensor([[a == b for b in first] for a in first])
    assert torch.equal(matrix(Chunked(chunk=(1, 3, 2), causal=False), 9), same)
    assert torch.equal(matrix(Chunked(chunk=(4,)), 9), matrix(Chunked(chunk=4), 9))


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


# As FlexAttention asks, with the fields of a padded and packed batch.

EXAMPLES = [mask for mask, _ in BY_EYE] + [
    Full(),
    Causal(),
    Prefix(),
    SlidingWindow(window=3),
    RandomBlocks(block=2, count=2),
    RandomBlocks(block=3, alike=False),
    Strided(stride=3, merged=False),
    Fixed(stride=4, summary=2, merged=False),
    PerHead((Causal(), Dilated())),
    PerHead((Causal(), Chunked(chunk=4), Full()), groups=(1, 1, 2)),
    Causal() & ~SlidingWindow(window=3),
    SlidingWindow(window=2) | GlobalTokens() | RandomBlocks(block=2),
    RandomKeys(alike=False),
    Chunked(chunk=(2, 4)),
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
    assert set(MASKS.values()) - {type(mask) for mask in EXAMPLES} == {
        MASKS["not"]
    }  # which the algebra holds


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
        "strided",
        *({"name": name, "causal": False} for name in ("chunked", "random_keys")),
    ],
)
def test_encoders_keep_the_laws(mask):
    for law in ("padding", "documents", "kernels", "mask"):
        assert LAWS[law](tiny(model="encoder", mask=mask)) is None


REFUSED = {
    "mask=chunked mask.chunk=0": "mask.chunk: must be at least 1 token; got 0.",
    "mask=chunked mask.chunk=[4,0]": "mask.chunk: must be at least 1 token; got [4, 0].",
    "mask=random_keys mask.probabilities=[1.5]": (
        "mask.probabilities: must list at least one number from 0 to 1; got [1.5]. Try [1.0, 0.5]."
    ),
    "mask=random_keys mask.probabilities=[0.0]": (
        "mask.probabilities: must not all be 0, or no token sees any; got [0.0]. Try [1.0, 0.5]."
    ),
    "mask=dilated mask.step=0": "mask.step: must be at least 1 token; got 0.",
    "mask=fixed mask.summary=129": (
        "mask.summary: must be at most mask.stride; got 129 and 128. Try 128."
    ),
    "mask=random_blocks mask.count=0": "mask.count: must be at least 1; got 0.",
    "mask=not mask.of=full": (
        "mask: mask 'not' hides every token of a text of 128 from all; choose mask=causal or full."
    ),
    "mask=all_of mask.of=[causal,{name:not,of:causal}] data.seq_len=32": (
        "mask: mask 'all_of' hides every token of a text of 32 from all; choose mask=causal or"
        " full."
    ),
    "mask=per_head mask.of=[causal] mask.groups=[1,2]": (
        "mask.groups: must have a number for each of the 1 masks; got [1, 2]."
    ),
    "mask=per_head mask.of=[causal,{name:strided}] mask.groups=[1,2] attn.heads=4": (
        "mask: per_head.groups must add up to the 4 heads of attn 'multi_head'; got [1, 2], 3"
        " together. null lets heads take turns."
    ),
    "mask=per_head mask.of=[causal,causal,causal] attn.heads=2": (
        "mask: per_head has 3 masks, and attn 'multi_head' 2 heads here; a mask needs a head. Give"
        " fewer masks, or an attention with more heads."
    ),
    (
        "mask=all_of "
        "mask.of=[causal,{name:not,of:{name:per_head,of:[causal],groups:[3]}}] attn.heads=4"
    ): (
        "mask: per_head.groups must add up to the 4 heads of attn 'multi_head'; got [3], 3"
        " together. null lets heads take turns."
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(words):
    assert refused(words) == [REFUSED[words]]


def test_a_mask_that_sees_both_ways_is_refused_where_the_next_token_is_predicted():
    with pytest.raises(
        ConfigError, match=r"^mask: mask 'chunked' sees the future, so language_modeling would read"
    ):
        compose(["mask=chunked", "mask.causal=false"])


def test_masks_of_masks_compose_from_a_command_line():
    config = compose(
        ["mask=per_head", "mask.of=[causal,{name:chunked,chunk:8}]", "attn.heads=4", "model.dim=64"]
    )
    assert not faults(config)
    assert MASKS.create(config["mask"]) == PerHead((Causal(), Chunked(chunk=8)))


def test_chunks_of_several_sizes_compose_from_a_command_line():
    config = compose(["mask=chunked", "mask.chunk=[4,8]"])
    assert not faults(config)
    assert MASKS.create(config["mask"]) == Chunked(chunk=(4, 8))
