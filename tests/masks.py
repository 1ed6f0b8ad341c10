"""Masks as pictures: a row of 0 and 1 for each query."""

import pytest

from xformer_kit.mask import matrix


def rows(mask, length=6, heads=1):
    """Returns a string of 0 and 1 for each query, with 1 for each visible key; one head after
    another.
    """
    picture = matrix(mask, length, heads).int()
    return ["".join(map(str, row)) for row in picture.flatten(0, -2).tolist()]


def pictures(cases):
    """Returns a test of each (mask, its rows)."""

    @pytest.mark.parametrize(
        ("mask", "expected"), cases, ids=lambda x: "" if isinstance(x, list) else str(x)
    )
    def test(mask, expected):
        assert rows(mask) == expected

    return test
