"""The law of xformer_kit/laws/decoding_cost.py is broken by a faulty component."""

from breaking import WithCache, broken_component_test, laws_in

from xformer_kit.attention import ATTENTIONS
from xformer_kit.ffn import FFNS, MLP
from xformer_kit.laws import LAWS, tiny_config


class LoopsOverCache(WithCache):
    """Takes an operation for each cached token."""

    def forward(self, x, source, context, cache=None):
        for _ in range(cache.length if cache else 0):
            x = x + 0
        return super().forward(x, source, context, cache)


class DropsNothing(MLP):
    """Multiplies by a mask that is 1 in evaluation."""

    def __init__(self, dim: int, *, dropout: float = 0.0):
        super().__init__(dim)
        self.probability = dropout

    def forward(self, x, tokens):
        return super().forward(x * x.new_ones(x.shape) if self.probability else x)


ARGUMENTS = [
    (
        "decoding cost",
        ATTENTIONS,
        LoopsOverCache,
        r"the 12th token takes \d+ operations, the 7th \d+: add \d+ and \d+",
        {"attn": "broken"},
    ),
    (
        "decoding cost",
        FFNS,
        DropsNothing,
        r"a token takes \d+ operations with dropout and \d+ without: .*new_ones 0 and 2",
        {"ffn": "broken"},
    ),
]


test_a_broken_component_is_caught = broken_component_test(ARGUMENTS)


def test_every_law_catches_a_broken_component():
    assert laws_in("decoding_cost") == {law for law, *_ in ARGUMENTS}


def test_two_stacks_keep_the_law():
    assert LAWS["decoding cost"](tiny_config("encoder_decoder")) is None
