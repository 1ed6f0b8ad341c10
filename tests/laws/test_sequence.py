"""Each law of xformer_kit/laws/sequence.py is broken by a faulty component."""

import torch
from breaking import (
    TWO,
    FiniteMask,
    MeanOverPast,
    MeanOverTime,
    MinusInfinityMask,
    OneAhead,
    ScaledByPosition,
    UndeclaredRotation,
    broken_component_test,
    laws_in,
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
    """Uses the slot instead of the position, so that padding and documents change it."""

    def bias(self, query, key, head):
        return key.slot * 0.1 + head * 0


class SlotDistances(Position):
    """Counts padding between two tokens."""

    def bias(self, query, key, head):
        return (key.slot - query.slot) * 0.1 + head * 0


class DocumentsByNumber(Reference):
    """Takes the documents that `documents` numbers 0 as one."""

    def prepare(self, context, heads, biased, dtype):
        if context.key.document is not None:
            query, key = (
                tokens._replace(document=tokens.document % 2)
                for tokens in (context.query, context.key)
            )
            context = context._replace(query=query, key=key)
        return super().prepare(context, heads, biased, dtype)


class PaddedSeesDocuments(Reference):
    """Attends to all documents of a padded batch."""

    def prepare(self, context, heads, biased, dtype):
        if context.key.real is not None:
            context = context._replace(key=context.key._replace(document=None))
        return super().prepare(context, heads, biased, dtype)


class CrossOnly(Reference):
    """Changes the context of cross attentions only."""

    def prepare(self, context, heads, biased, dtype):
        return super().prepare(
            self.changed(context) if context.cross else context, heads, biased, dtype
        )


class CrossSeesDocuments(CrossOnly):
    def changed(self, context):
        return context._replace(key=context.key._replace(document=None))


class ScalesLongTexts(MLP):
    """Has another factor for texts of more than 16 tokens."""

    def forward(self, x, tokens):
        h, report = super().forward(x)
        return h * (2 if x.shape[1] > 16 else 1), report


ARGUMENTS = [
    ("causality", FFNS, ScalesLongTexts, "a text of 8 tokens has other outputs", {"ffn": "broken"}),
    ("causality", FFNS, MeanOverTime, "changes what comes before it", {"ffn": "broken"}),
    ("causality", MASKS, OneAhead, "changes what comes before it", {"mask": "broken"}),
    ("documents", FFNS, MeanOverPast, "the first document changes others", {"ffn": "broken"}),
    ("documents", KERNELS, DocumentsByNumber, "changes others", {"kernel": "broken"}),
    (
        "documents",
        POSITIONS,
        SlotPositions,
        "the second document differs from the document without others",
        {"position": "broken"},
    ),
    (
        "documents with padding",
        KERNELS,
        PaddedSeesDocuments,
        "a row of several documents and 13 tokens, padded to 13, right, differs",
        {"kernel": "broken"},
    ),
    ("padding", FFNS, MeanOverTime, "differs from the row without padding", {"ffn": "broken"}),
    ("padding", POSITIONS, SlotDistances, "to 13, inside, differs", {"position": "broken"}),
    ("batch", FFNS, MeanOverBatch, "a single row differs", {"ffn": "broken"}),
    ("batch", FFNS, FirstRow, "permuting the rows", {"ffn": "broken"}),
    ("shift", POSITIONS, ScaledByPosition, "a shift by 16 matters", {"position": "broken"}),
    (
        "symmetry",
        POSITIONS,
        UndeclaredRotation,
        "permuting the tokens",
        {"position": "broken", "mask": "full"},
    ),
    ("nothing", KERNELS, FiniteMask, "not zero", {"kernel": "broken", "position": "none"}),
    ("nothing", KERNELS, MinusInfinityMask, "not finite", {"kernel": "broken", "position": "none"}),
    ("causality", FFNS, MeanOverTime, "changes what comes before it", TWO | {"ffn": "broken"}),
    (
        "documents",
        KERNELS,
        CrossSeesDocuments,
        "differs from the document without others",
        TWO | {"kernel": "broken"},
    ),
]


test_a_broken_component_is_caught = broken_component_test(ARGUMENTS)


def test_every_law_catches_a_broken_component():
    assert laws_in("sequence") == {law for law, *_ in ARGUMENTS}
