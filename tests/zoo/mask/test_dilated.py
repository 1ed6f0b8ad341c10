"""Mask dilated, by eye."""

import pytest
from refusing import refusals

from xformer_kit.mask import (
    matrix,
)
from xformer_kit.zoo.mask.dilated import Dilated


def rows(mask, length=6, heads=1):
    picture = matrix(mask, length, heads).int()
    return ["".join(map(str, row)) for row in picture.flatten(0, -2).tolist()]


BY_EYE = [
    (Dilated(step=2), ["100000", "010000", "101000", "010100", "101010", "010101"]),
    (Dilated(step=2, window=2), ["100000", "010000", "101000", "010100", "001010", "000101"]),
    (Dilated(step=3, causal=False), ["100100", "010010", "001001", "100100", "010010", "001001"]),
    (
        Dilated(step=2, window=2, causal=False),
        ["101000", "010100", "101010", "010101", "001010", "000101"],
    ),
]


@pytest.mark.parametrize(
    ("mask", "expected"),
    BY_EYE,
    ids=lambda value: str(value) if not isinstance(value, list) else "",
)
def test_by_eye(mask, expected):
    assert rows(mask) == expected


REFUSED = {
    "mask=dilated mask.step=0": ("mask.step: must be at least 1 token; got 0."),
}


test_refused_configs = refusals(REFUSED)
