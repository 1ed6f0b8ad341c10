"""Masks with gaps, by eye, and each as FlexAttention asks it."""

import pytest
import torch
from refusing import refusals
from torch.nn.attention.flex_attention import create_mask

from xformer_kit.config import compose
from xformer_kit.laws import LAWS, faults, tiny
from xformer_kit.mask import (
    INF,
    MASKS,
    Causal,
    Chunked,
    Full,
    GlobalTokens,
    PerHead,
    Prefix,
    SlidingWindow,
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
    (Chunked(chunk=3), ["100000", "110000", "111000", "000100", "000110", "000111"]),
    (Chunked(chunk=4, causal=False), ["111100", "111100", "111100", "111100", "000011", "000011"]),
    (GlobalTokens(count=2), ["100000", "110000", "110000", "110000", "110000", "110000"]),
    (GlobalTokens(causal=False), ["111111", "100000", "100000", "100000", "100000", "100000"]),
]


@pytest.mark.parametrize(
    ("mask", "expected"),
    BY_EYE,
    ids=lambda value: str(value) if not isinstance(value, list) else "",
)
def test_by_eye(mask, expected):
    assert rows(mask) == expected


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


def test_chunks_of_several_sizes():
    first = [0, 1, 1, 1, 2, 2, 3, 3, 4]  # sizes 1, 3, 2, 2, ...
    same = torch.tensor([[a == b for b in first] for a in first])
    assert torch.equal(matrix(Chunked(chunk=(1, 3, 2), causal=False), 9), same)
    assert torch.equal(matrix(Chunked(chunk=(4,)), 9), matrix(Chunked(chunk=4), 9))


# As FlexAttention asks, with the fields of a padded and packed batch.

EXAMPLES = [mask for mask, _ in BY_EYE] + [
    Full(),
    Causal(),
    Prefix(),
    SlidingWindow(window=3),
    PerHead((Causal(), Chunked(chunk=4), Full()), groups=(1, 1, 2)),
    Causal() & ~SlidingWindow(window=3),
    SlidingWindow(window=2) | GlobalTokens(),
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
    core = {MASKS[name] for name in MASKS if name not in MASKS.zoo}
    assert core - {type(mask) for mask in EXAMPLES} == {MASKS["not"]}  # which the algebra holds


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
    ],
)
def test_encoders_keep_the_laws(mask):
    for law in ("padding", "documents", "kernels", "mask"):
        assert LAWS[law](tiny(model="encoder", mask=mask)) is None


REFUSED = {
    "mask=chunked mask.chunk=0": ("mask.chunk: must be at least 1 token; got 0."),
    "mask=chunked mask.chunk=[4,0]": ("mask.chunk: must be at least 1 token; got [4, 0]."),
    "mask=not mask.of=full": (
        "mask: mask 'not' hides every token of a text of 128 from all; choose mask=causal or full."
    ),
    ("mask=all_of mask.of=[causal,{name:not,of:causal}] data.seq_len=32"): (
        "mask: mask 'all_of' hides every token of a text of 32 from all; choose mask=causal or"
        " full."
    ),
    ("mask=per_head mask.of=[causal] mask.groups=[1,2]"): (
        "mask.groups: must have a number for each of the 1 masks; got [1, 2]."
    ),
    ("mask=per_head mask.of=[causal,{name:strided}] mask.groups=[1,2] attn.heads=4"): (
        "mask: per_head.groups must add up to the 4 heads of attn 'multi_head'; got [1, 2], 3"
        " together. null lets heads take turns."
    ),
    ("mask=per_head mask.of=[causal,causal,causal] attn.heads=2"): (
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


test_refused_configs = refusals(REFUSED)


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
