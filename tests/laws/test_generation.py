"""Generation beside the whole: each law of xformer_kit/laws/generation.py bites."""

from breaking import CROSS, Caching, MeanOverPast, UnselectedAttention, bites, each, laws_of

from xformer_kit.attention import ATTENTIONS
from xformer_kit.ffn import FFNS
from xformer_kit.model.cache import KeyValueCache


class Stale(KeyValueCache):
    """Returns the newest key and value in the place of all that are older."""

    def append(self, *new):
        held = [h.clone() for h in super().append(*new)]
        for h in held:
            h[..., :-1, :] = h[..., -1:, :]
        return held


class Unrewound(KeyValueCache):
    """Loses what is left, too."""

    def rewind(self, n):
        super().rewind(n)
        for held in self.tensors:
            held[..., : self.length, :] = 0


class ForgetfulAttention(Caching):
    kind = Stale


class UnrewoundAttention(Caching):
    kind = Unrewound


ARGUMENTS = [
    ("cache", FFNS, MeanOverPast, "with a cache, in chunks of", {"ffn": "broken"}),
    ("cache", ATTENTIONS, ForgetfulAttention, "with a cache, in chunks of", {"attn": "broken"}),
    (
        "cache with padding",
        ATTENTIONS,
        ForgetfulAttention,
        "with a cache and padding",
        {"attn": "broken"},
    ),
    ("greedy", ATTENTIONS, ForgetfulAttention, "not the likeliest", {"attn": "broken"}),
    ("select and rewind", ATTENTIONS, UnselectedAttention, "after `select`", {"attn": "broken"}),
    ("select and rewind", ATTENTIONS, UnrewoundAttention, "after `rewind`", {"attn": "broken"}),
    (
        "cache with a prefix",
        ATTENTIONS,
        ForgetfulAttention,
        "and a prefix",
        {"attn": "broken", "mask": "prefix"},
    ),
    ("select and rewind", ATTENTIONS, UnselectedAttention, "after `select`", CROSS),
]


@each(ARGUMENTS)
def test_a_broken_component_is_caught(law, registry, component, match, composition):
    bites(law, registry, component, match, composition)


def test_every_law_is_seen_to_bite():
    assert laws_of("generation") == {law for law, *_ in ARGUMENTS}
