"""Components that break a law on purpose, and how each is caught by that law's name.

A law that nothing can break proves nothing.
"""

from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch

from xformer_kit.attention import MultiHead
from xformer_kit.ffn import MLP
from xformer_kit.kernel import Reference
from xformer_kit.laws import LAWS, LawBroken, faults, tiny
from xformer_kit.mask import Mask
from xformer_kit.model.cache import KeyValueCache
from xformer_kit.position import Position


@contextmanager
def registered(registry, component):
    """A component that exists for one test, called 'broken'."""
    registry.register("broken")(component)
    try:
        yield
    finally:
        registry.forget(component.__module__)


def bites(law, registry, component, match, composition):
    with registered(registry, component):
        config = tiny(**composition)
        assert not faults(config)
        with pytest.raises(LawBroken, match=match) as caught:
            LAWS[law](config)
    assert f"the law '{law}' is broken: " in str(caught.value)
    assert "Seen with: " in str(caught.value)
    assert " model.dim=36 " in str(caught.value)


def each(arguments):
    """The cases of `test_a_broken_component_is_caught`."""
    names = "law", "registry", "component", "match", "composition"
    return pytest.mark.parametrize(
        names, arguments, ids=[f"{law}-{component.__name__}" for law, _, component, *_ in arguments]
    )


def laws_of(module):
    """The laws that stand in one file of xformer_kit/laws."""
    return {name for name, law in LAWS.items() if law.__module__ == f"xformer_kit.laws.{module}"}


# Broken components, each with one fault, that several laws catch.


class MeanOverTime(MLP):
    """Adds the mean over the whole sequence: reads the future, other documents and padding."""

    def forward(self, x, tokens):
        return super().forward(x + x.mean(1, keepdim=True))


class MeanOverPast(MLP):
    """Adds the running mean: keeps causality, and has no cache."""

    def forward(self, x, tokens):
        count = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]
        return super().forward(x + x.cumsum(1) / count)


class Liar(Mask):
    """Sees one token ahead; says that it does not."""


@dataclass(frozen=True)
class OneAhead(Liar):
    def allows(self, query, key, head):
        return key.slot <= query.slot + 1

    @property
    def sees_future(self):
        return False


class ByOrder(Position):
    """No hook that shows, and yet an order: rotates in `begin`'s tables, which it does not name."""

    def begin(self, query, key, cached=0):
        return Scaled()


class Scaled(Position):
    def rotate(self, x, tokens):
        return x * (1 + tokens.position[:, None, :, None])


class Unselected(KeyValueCache):
    def select(self, rows):
        pass


class Caching(MultiHead):
    kind = KeyValueCache

    def cache(self, rows, length, context=None):
        shape = (rows, self.kv_heads, length, self.head_dim)
        return self.kind(shape, shape, dtype=self.q.weight.dtype, device=self.q.weight.device)


class UnselectedAttention(Caching):
    kind = Unselected


class Blind(MultiHead):
    """Looks at another stack with its eyes shut."""

    def forward(self, x, source, context, cache=None):
        return super().forward(x, None if source is None else self.seen(source), context, cache)

    def seen(self, source):
        return 0 * source


class Uniform(Reference):
    """A row with nothing to see looks at all: a finite mask in place of minus infinity."""

    def weights(self, q, k, context, scale, dropout=0.0, scores=None, score_fn=None):
        seen, _ = context.prepared
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) * scale
        return scores.masked_fill(~seen, -1e9).softmax(-1)


class NotANumber(Uniform):
    def weights(self, q, k, context, scale, dropout=0.0, scores=None, score_fn=None):
        seen, _ = context.prepared
        if seen is None:
            return Reference.weights(self, q, k, context, scale, dropout, scores)
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) * scale
        return scores.masked_fill(~seen, -float("inf")).softmax(-1)


TWO = {"model": "encoder_decoder"}
CROSS = TWO | {"decoder": {"cross": {"name": "broken"}}}
