"""Masks with gaps: their pictures, and the configs that are refused."""

import pytest
import torch
from refusals import refusals

from tests.masks import pictures, rows
from xformer_kit.config import compose
from xformer_kit.laws import faults
from xformer_kit.mask import (
    MASKS,
    Causal,
    ChunkedMask,
    GlobalTokens,
    PerHead,
    SlidingWindow,
    matrix,
)
from xformer_kit.registry import ConfigError

PICTURES = [
    (
        SlidingWindow(window=2, causal=False),
        ["110000", "111000", "011100", "001110", "000111", "000011"],
    ),
    (ChunkedMask(chunk=3), ["100000", "110000", "111000", "000100", "000110", "000111"]),
    (
        ChunkedMask(chunk=4, causal=False),
        ["111100", "111100", "111100", "111100", "000011", "000011"],
    ),
    (GlobalTokens(count=2), ["100000", "110000", "110000", "110000", "110000", "110000"]),
    (GlobalTokens(causal=False), ["111111", "100000", "100000", "100000", "100000", "100000"]),
]


test_pictures = pictures(PICTURES)


def test_per_head_masks():
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


def test_chunks_of_several_sizes():
    first = [0, 1, 1, 1, 2, 2, 3, 3, 4]  # sizes 1, 3, 2, 2, ...
    same = torch.tensor([[a == b for b in first] for a in first])
    assert torch.equal(matrix(ChunkedMask(chunk=(1, 3, 2), causal=False), 9), same)
    assert torch.equal(matrix(ChunkedMask(chunk=(4,)), 9), matrix(ChunkedMask(chunk=4), 9))


REFUSED = {
    "mask=chunked mask.chunk=0": ("mask.chunk: must be at least 1 token; got 0."),
    "mask=chunked mask.chunk=[4,0]": ("mask.chunk: must be at least 1 token; got [4, 0]."),
    "mask=not mask.of=full": (
        "mask: mask 'not' hides every token of a text of 128 from all. Choose mask=causal or full."
    ),
    ("mask=all_of mask.of=[causal,{name:not,of:causal}] data.seq_len=32"): (
        "mask: mask 'all_of' hides every token of a text of 32 from all. Choose mask=causal or"
        " full."
    ),
    ("mask=per_head mask.of=[causal] mask.groups=[1,2]"): (
        "mask.groups: must have a number of at least 1 for each of the 1 masks; got [1, 2]."
    ),
    ("mask=per_head mask.of=[causal,{name:strided}] mask.groups=[1,2] attn.heads=4"): (
        "mask.groups: must add up to the 4 heads of attn 'multi_head'; got [1, 2], 3"
        " together. null lets heads take turns."
    ),
    ("mask=per_head mask.of=[causal,causal,causal] attn.heads=2"): (
        "mask.of: has 3 masks, and attn 'multi_head' 2 heads here; a mask needs a head. Give"
        " fewer masks, or an attention with more heads."
    ),
    (
        "mask=all_of mask.of=[causal,{name:not,of:{name:per_head,groups:[3],"
        "of:[{name:sliding_window,window:4}]}}] attn.heads=4"
    ): (
        "mask.of[1].of.groups: must add up to the 4 heads of attn 'multi_head'; got [3], 3"
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
    assert MASKS.create(config["mask"]) == PerHead((Causal(), ChunkedMask(chunk=8)))


def test_chunks_of_several_sizes_compose_from_a_command_line():
    config = compose(["mask=chunked", "mask.chunk=[4,8]"])
    assert not faults(config)
    assert MASKS.create(config["mask"]) == ChunkedMask(chunk=(4, 8))
