"""Each law of xformer_kit/laws/generation.py is broken by a faulty component."""

from breaking import (
    CROSS,
    IgnoresSelectAttention,
    MeanOverPast,
    WithCache,
    broken_component_test,
    laws_in,
)

from xformer_kit.attention import ATTENTIONS
from xformer_kit.ffn import FFNS
from xformer_kit.kernel import KERNELS, Reference
from xformer_kit.tensors.cache import KeyValueCache


class NewestOnlyCache(KeyValueCache):
    """Returns the newest key and value in place of all older ones."""

    def append(self, *new):
        held = [h.clone() for h in super().append(*new)]
        for h in held:
            h[..., :-1, :] = h[..., -1:, :]
        return held


class ZeroedByRewind(KeyValueCache):
    """`rewind` also erases the remaining tokens."""

    def rewind(self, n):
        super().rewind(n)
        for held in self.tensors:
            held[..., : self.length, :] = 0


class NewestOnlyAttention(WithCache):
    kind = NewestOnlyCache


class ZeroedByRewindAttention(WithCache):
    kind = ZeroedByRewind


class ForgetsLaterPadding(Reference):
    """Attends to the padding of all calls if a later call has some."""

    def prepare(self, context, heads, biased, dtype):
        if context.query.real is not None and context.key.length > context.query.length:
            context = context._replace(key=context.key._replace(real=None))
        return super().prepare(context, heads, biased, dtype)


class ForgetsDocuments(Reference):
    """Attends to all documents in a call after the first."""

    def prepare(self, context, heads, biased, dtype):
        if context.key.length > context.query.length:
            context = context._replace(key=context.key._replace(document=None))
        return super().prepare(context, heads, biased, dtype)


ARGUMENTS = [
    (
        "cache with documents",
        KERNELS,
        ForgetsDocuments,
        "with a cache and documents, in chunks of 5.1.3.4, logits differ",
        {"kernel": "broken"},
    ),
    ("cache", FFNS, MeanOverPast, "with a cache, in chunks of", {"ffn": "broken"}),
    ("cache", ATTENTIONS, NewestOnlyAttention, "with a cache, in chunks of", {"attn": "broken"}),
    (
        "cache with padding",
        ATTENTIONS,
        NewestOnlyAttention,
        "with a cache and padding",
        {"attn": "broken"},
    ),
    (
        "cache with padding",
        KERNELS,
        ForgetsLaterPadding,
        "with a cache and gaps",
        {"kernel": "broken"},
    ),
    ("greedy", ATTENTIONS, NewestOnlyAttention, "not the likeliest", {"attn": "broken"}),
    ("select and rewind", ATTENTIONS, IgnoresSelectAttention, "after `select`", {"attn": "broken"}),
    (
        "select and rewind",
        ATTENTIONS,
        ZeroedByRewindAttention,
        "after `rewind`",
        {"attn": "broken"},
    ),
    (
        "cache with a prefix",
        ATTENTIONS,
        NewestOnlyAttention,
        "and a prefix",
        {"attn": "broken", "mask": "prefix"},
    ),
    ("select and rewind", ATTENTIONS, IgnoresSelectAttention, "after `select`", CROSS),
]


test_a_broken_component_is_caught = broken_component_test(ARGUMENTS)


def test_every_law_catches_a_broken_component():
    assert laws_in("generation") == {law for law, *_ in ARGUMENTS}
