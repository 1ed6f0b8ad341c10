"""What a target may know of its source: each law of xformer_kit/laws/source.py bites."""

import torch
from breaking import CROSS, TWO, Blind, ByOrder, MeanOverTime, NotANumber, bites, each, laws_of

from xformer_kit.attention import ATTENTIONS, MultiHead
from xformer_kit.ffn import FFNS
from xformer_kit.kernel import KERNELS, Reference
from xformer_kit.laws import LAWS, tiny
from xformer_kit.position import POSITIONS


class BlindToTheFirst(Blind):
    def seen(self, source):
        return source * (torch.arange(source.shape[1]) > 0)[:, None]


class CountsTheSource(Blind):
    """Knows where a token of the source stands without being told by a position."""

    def seen(self, source):
        return source * torch.arange(1, source.shape[1] + 1)[:, None]


class Again(MultiHead):
    """Reads the source in each step of generation."""

    def forward(self, x, source, context, cache=None):
        return super().forward(x, source, context, cache if source is None else None)


class Across(Reference):
    """Breaks something in attentions to another stack alone."""

    def prepare(self, context, heads, biased, dtype):
        return super().prepare(
            self.changed(context) if context.cross else context, heads, biased, dtype
        )


class SeesPadding(Across):
    def changed(self, context):
        return context._replace(key=context.key._replace(real=None))


ARGUMENTS = [
    ("source", ATTENTIONS, Blind, "no token of the source has an influence", CROSS),
    (
        "source",
        ATTENTIONS,
        BlindToTheFirst,
        "token 0 of the source has no",
        CROSS | {"encoder": {"layout": ["ffn"]}},
    ),
    (
        "source padding",
        KERNELS,
        SeesPadding,
        "differs from the source alone",
        TWO | {"kernel": "broken"},
    ),
    (
        "source padding",
        KERNELS,
        NotANumber,
        "all padding makes logits that are not",
        TWO | {"kernel": "broken"},
    ),
    (
        "source padding",
        FFNS,
        MeanOverTime,
        "padded on the right",
        TWO | {"encoder": {"ffn": "broken"}},
    ),
    ("source once", ATTENTIONS, Again, "reads the source again", CROSS),
    (
        "source order",
        ATTENTIONS,
        CountsTheSource,
        "permuting the source matters",
        CROSS | {"position": "none"},
    ),
    (
        "source order",
        POSITIONS,
        ByOrder,
        "permuting the source matters",
        TWO | {"position": "broken"},
    ),
]


@each(ARGUMENTS)
def test_a_broken_component_is_caught(law, registry, component, match, composition):
    bites(law, registry, component, match, composition)


def test_every_law_is_seen_to_bite():
    assert laws_of("source") == {law for law, *_ in ARGUMENTS}


def test_two_stack_may_predict_several_tokens():
    config = tiny("encoder_decoder", extra={"future_tokens": {"count": 2}})
    for law in ("source", "source padding", "source once"):
        assert LAWS[law](config) is None
