"""Mask fixed."""

from refusals import refusals

from tests.masks import pictures
from xformer_kit.zoo.mask.fixed import Fixed

PICTURES = [
    (Fixed(stride=3, summary=1), ["100000", "110000", "111000", "001100", "001110", "001111"]),
    (
        Fixed(stride=3, summary=1, causal=False),
        ["111001", "111001", "111001", "001111", "001111", "001111"],
    ),
]


test_pictures = pictures(PICTURES)


REFUSED = {
    "mask=fixed mask.summary=129": (
        "mask.summary: must be at most mask.stride; got 129 and 128. Try 128."
    ),
}


test_refused_configs = refusals(REFUSED)
