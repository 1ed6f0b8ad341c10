"""What a row of tokens may know of others: each law of xformer_kit/laws/sequence.py bites."""

import torch
from breaking import (
    TWO,
    ByOrder,
    MeanOverPast,
    MeanOverTime,
    NotANumber,
    OneAhead,
    Scaled,
    Uniform,
    bites,
    each,
    laws_of,
)

from xformer_kit.ffn import FFNS, MLP
from xformer_kit.kernel import KERNELS, Reference
from xformer_kit.mask import MASKS
from xformer_kit.position import POSITIONS, Position


class MeanOverBatch(MLP):
    def forward(self, x, tokens):
        return super().forward(x + x.mean(0, keepdim=True))


class FirstRow(MLP):
    """Treats the first row of a batch differently."""

    def forward(self, x, tokens):
        first = torch.zeros_like(x)
        first[0] = 1
        return super().forward(x + first)


class SlotPositions(Position):
    """Uses the order of arrival in place of the position, so that padding and documents shift
    it.
    """

    def bias(self, query, key, head):
        return key.slot * 0.1 + head * 0


class Across(Reference):
    """Breaks something in attentions to another stack alone."""

    def prepare(self, context, heads, biased, dtype):
        return super().prepare(
            self.changed(context) if context.cross else context, heads, biased, dtype
        )


class SeesDocuments(Across):
    def changed(self, context):
        return context._replace(key=context.key._replace(document=None))


ARGUMENTS = [
    ("causality", FFNS, MeanOverTime, "changes what comes before it", {"ffn": "broken"}),
    ("causality", MASKS, OneAhead, "changes what comes before it", {"mask": "broken"}),
    ("documents", FFNS, MeanOverPast, "the first document changes the second", {"ffn": "broken"}),
    (
        "documents",
        POSITIONS,
        SlotPositions,
        "the second document differs from the document alone",
        {"position": "broken"},
    ),
    ("padding", FFNS, MeanOverTime, "differs from the row alone", {"ffn": "broken"}),
    ("batch", FFNS, MeanOverBatch, "a row alone differs", {"ffn": "broken"}),
    ("batch", FFNS, FirstRow, "permuting the rows", {"ffn": "broken"}),
    ("shift", POSITIONS, Scaled, "a shift by 16 matters", {"position": "broken"}),
    (
        "symmetry",
        POSITIONS,
        ByOrder,
        "permuting the tokens",
        {"position": "broken", "mask": "full"},
    ),
    ("nothing", KERNELS, Uniform, "not zero", {"kernel": "broken", "position": "none"}),
    ("nothing", KERNELS, NotANumber, "not finite", {"kernel": "broken", "position": "none"}),
    ("causality", FFNS, MeanOverTime, "changes what comes before it", TWO | {"ffn": "broken"}),
    (
        "documents",
        KERNELS,
        SeesDocuments,
        "differs from the document alone",
        TWO | {"kernel": "broken"},
    ),
]


@each(ARGUMENTS)
def test_a_broken_component_is_caught(law, registry, component, match, composition):
    bites(law, registry, component, match, composition)


def test_every_law_is_seen_to_bite():
    assert laws_of("sequence") == {law for law, *_ in ARGUMENTS}
