"""Mask dilated."""

from refusals import refusals

from tests.masks import pictures
from xformer_kit.zoo.mask.dilated import Dilated

PICTURES = [
    (Dilated(step=2), ["100000", "010000", "101000", "010100", "101010", "010101"]),
    (Dilated(step=2, window=2), ["100000", "010000", "101000", "010100", "001010", "000101"]),
    (Dilated(step=3, causal=False), ["100100", "010010", "001001", "100100", "010010", "001001"]),
    (
        Dilated(step=2, window=2, causal=False),
        ["101000", "010100", "101010", "010101", "001010", "000101"],
    ),
]


test_pictures = pictures(PICTURES)


REFUSED = {
    "mask=dilated mask.step=0": ("mask.step: must be at least 1 token; got 0."),
}


test_refused_configs = refusals(REFUSED)
