"""Each law of xformer_kit/laws/source.py is broken by a faulty component."""

import torch
from breaking import (
    CROSS,
    TWO,
    IgnoresSource,
    MeanOverTime,
    MinusInfinityMask,
    UndeclaredRotation,
    broken_component_test,
    laws_in,
)

from xformer_kit.attention import ATTENTIONS, MultiHead
from xformer_kit.ffn import FFNS
from xformer_kit.kernel import KERNELS, Reference
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.position import POSITIONS


class IgnoresFirstToken(IgnoresSource):
    def seen(self, source):
        return source * (torch.arange(source.shape[1]) > 0)[:, None]


class CountsSourceTokens(IgnoresSource):
    """Multiplies source tokens by their index, without a position."""

    def seen(self, source):
        return source * torch.arange(1, source.shape[1] + 1)[:, None]


class ReadsSourceAgain(MultiHead):
    """Reads the source again in each step of generation."""

    def forward(self, x, source, context, cache=None):
        return super().forward(x, source, context, cache if source is None else None)


class CrossOnly(Reference):
    """Changes the context of cross attentions only."""

    def prepare(self, context, heads, biased, dtype):
        return super().prepare(
            self.changed(context) if context.cross else context, heads, biased, dtype
        )


class CrossSeesPadding(CrossOnly):
    def changed(self, context):
        return context._replace(key=context.key._replace(real=None))


ARGUMENTS = [
    ("source", ATTENTIONS, IgnoresSource, "no token of the source has an influence", CROSS),
    (
        "source",
        ATTENTIONS,
        IgnoresFirstToken,
        "token 0 of the source has no",
        CROSS | {"encoder": {"layout": ["ffn"]}},
    ),
    (
        "source padding",
        KERNELS,
        CrossSeesPadding,
        "differs from the source without padding",
        TWO | {"kernel": "broken"},
    ),
    (
        "source padding",
        KERNELS,
        MinusInfinityMask,
        "all padding makes logits that are not",
        TWO | {"kernel": "broken"},
    ),
    (
        "source padding",
        FFNS,
        MeanOverTime,
        "padded to 11, right",
        TWO | {"encoder": {"ffn": "broken"}},
    ),
    ("source once", ATTENTIONS, ReadsSourceAgain, "reads the source again", CROSS),
    (
        "source order",
        ATTENTIONS,
        CountsSourceTokens,
        "permuting the source matters",
        CROSS | {"position": "none"},
    ),
    (
        "source order",
        POSITIONS,
        UndeclaredRotation,
        "permuting the source matters",
        TWO | {"position": "broken"},
    ),
]


test_a_broken_component_is_caught = broken_component_test(ARGUMENTS)


def test_every_law_catches_a_broken_component():
    assert laws_in("source") == {law for law, *_ in ARGUMENTS}


def test_two_stacks_may_predict_several_tokens():
    config = tiny_config("encoder_decoder", extra={"future_tokens": {"count": 2}})
    for law in ("source", "source padding", "source once"):
        assert LAWS[law](config) is None
