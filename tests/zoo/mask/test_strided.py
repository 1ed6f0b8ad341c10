"""Mask strided, by eye."""

import pytest

from xformer_kit.mask import (
    matrix,
)
from xformer_kit.zoo.mask.strided import Strided


def rows(mask, length=6, heads=1):
    picture = matrix(mask, length, heads).int()
    return ["".join(map(str, row)) for row in picture.flatten(0, -2).tolist()]


BY_EYE = [
    (Strided(stride=3), ["100000", "110000", "111000", "111100", "011110", "001111"]),
    (Strided(stride=2), ["100000", "110000", "111000", "011100", "101110", "010111"]),
]


@pytest.mark.parametrize(
    ("mask", "expected"),
    BY_EYE,
    ids=lambda value: str(value) if not isinstance(value, list) else "",
)
def test_by_eye(mask, expected):
    assert rows(mask) == expected
