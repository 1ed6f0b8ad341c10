"""Masks that show a band around each token: all tokens, the past, a window; and a prefix."""

from dataclasses import dataclass

from xformer_kit.mask.base import INF, MASKS, Mask
from xformer_kit.registry import at_least


@MASKS.register("full", also_called=("bidirectional", "none"), similar=("dense",))
@dataclass(frozen=True)
class Full(Mask):
    """Each token attends to all tokens (Vaswani et al., 2017, arXiv:1706.03762, section 3.2.3: the
    encoder).
    """

    def allows(self, query, key, head):
        return key.slot == key.slot

    def band(self):
        return INF, INF


@MASKS.register("causal", also_called=("autoregressive", "triangular"))
@dataclass(frozen=True)
class Causal(Mask):
    """Each token attends to itself and all tokens before it (Vaswani et al., 2017,
    arXiv:1706.03762, section 3.2.3: the decoder).
    """

    def allows(self, query, key, head):
        return key.slot <= query.slot

    def band(self):
        return INF, 0


@MASKS.register("sliding_window", also_called=("swa", "sliding", "window"), similar=("local",))
@dataclass(frozen=True)
class SlidingWindow(Mask):
    """Each token attends to itself and the `window - 1` tokens before it, or on each side of it
    (Beltagy et al., 2020, arXiv:2004.05150, section 3.1: the whole window is then 2 window - 1
    tokens).
    """

    window: int = 256  # tokens, including the query's own
    causal: bool = True  # whether later tokens are hidden

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", window=1)

    def allows(self, query, key, head):
        distance = query.slot - key.slot
        return (distance > (-1 if self.causal else -self.window)) & (distance < self.window)

    def band(self):
        return self.window - 1, 0 if self.causal else self.window - 1


@MASKS.register("prefix", also_called=("prefix_lm", "prefix_causal"))
@dataclass(frozen=True)
class Prefix(Mask):
    """Each token attends to itself, all tokens before it, and the whole prefix (Raffel et al.,
    2020, JMLR 21(140), figure 4).

    `Tokens.prefix` marks the tokens of the prefix; without a prefix the mask is causal. In
    generation the prompt is the prefix.
    """

    def allows(self, query, key, head):
        before = key.slot <= query.slot
        return before if key.prefix is None else before | key.prefix

    @property
    def sees_future(self):
        return False

    @property
    def sees_prefix(self):
        return True
