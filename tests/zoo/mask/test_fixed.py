"""Mask fixed, by eye."""

import pytest
from refusing import refusals

from xformer_kit.mask import (
    matrix,
)
from xformer_kit.zoo.mask.fixed import Fixed


def rows(mask, length=6, heads=1):
    picture = matrix(mask, length, heads).int()
    return ["".join(map(str, row)) for row in picture.flatten(0, -2).tolist()]


BY_EYE = [
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


REFUSED = {
    "mask=fixed mask.summary=129": (
        "mask.summary: must be at most mask.stride; got 129 and 128. Try 128."
    ),
}


test_refused_configs = refusals(REFUSED)
