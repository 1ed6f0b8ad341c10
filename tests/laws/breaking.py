"""Components that break a law on purpose, and assertions that the law is broken with its name."""

from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch

from xformer_kit.attention import ATTENTIONS, MultiHead
from xformer_kit.ffn import MLP
from xformer_kit.kernel import Reference
from xformer_kit.laws import LAWS, LawBroken, faults, tiny_config
from xformer_kit.laws.sizes import SIZES
from xformer_kit.mask import Mask
from xformer_kit.plan import as_node
from xformer_kit.position import Position
from xformer_kit.tensors.cache import KeyValueCache


@contextmanager
def registered(registry, component):
    """Registers a component as 'broken' for one test."""
    registry.register("broken")(component)
    try:
        yield
    finally:
        registry.forget(component.__module__)


def assert_caught(law, registry, component, match, composition):
    """Asserts that a composition with the component, called 'broken', breaks the law."""
    with registered(registry, component):
        config = tiny_config(**composition | _attention_with_sizes(composition))
        assert not faults(config)
        with pytest.raises(LawBroken, match=match) as caught:
            LAWS[law](config)
    assert f"the law '{law}' is broken: " in str(caught.value)
    assert "Seen with: " in str(caught.value)
    assert " model.dim=36 " in str(caught.value)


def _attention_with_sizes(composition):
    """The attention that is called 'broken' with the sizes of the package's attentions."""
    node = as_node(composition.get("attn", "multi_head"))
    if node["name"] != "broken":
        return {}
    options = ATTENTIONS.options("broken")
    return {
        "attn": {key: SIZES[key] for key in ("heads", "kv_heads", "head_dim") if key in options}
        | dict(node)
    }


def broken_component_test(arguments):
    """Returns a test that `assert_caught` holds for each of these arguments."""
    names = "law", "registry", "component", "match", "composition"
    ids = [f"{law}-{component.__name__}" for law, _, component, *_ in arguments]

    @pytest.mark.parametrize(names, arguments, ids=ids)
    def test(law, registry, component, match, composition):
        assert_caught(law, registry, component, match, composition)

    return test


def laws_in(module):
    """Returns the names of the laws of one file of xformer_kit/laws."""
    return {name for name, law in LAWS.items() if law.__module__ == f"xformer_kit.laws.{module}"}


# Broken components, each with one fault, that several laws catch.


class MeanOverTime(MLP):
    """Adds the mean over the whole sequence: reads the future, other documents and padding."""

    def forward(self, x, tokens):
        return super().forward(x + x.mean(1, keepdim=True))


class MeanOverPast(MLP):
    """Adds the running mean: causal, but without a cache."""

    def forward(self, x, tokens):
        count = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]
        return super().forward(x + x.cumsum(1) / count)


@dataclass(frozen=True)
class OneAhead(Mask):
    """Sees one token ahead although `sees_future` is False."""

    def allows(self, query, key, head):
        return key.slot <= query.slot + 1

    @property
    def sees_future(self):
        return False


class UndeclaredRotation(Position):
    """Rotates by the tables of `prepare`, and does not declare it in `enters`."""

    def prepare(self, query, key, cached=0):
        return ScaledByPosition()


class ScaledByPosition(Position):
    def rotate(self, x, tokens):
        return x * (1 + tokens.position[:, None, :, None])


class IgnoresSelect(KeyValueCache):
    def select(self, rows):
        pass


class WithCache(MultiHead):
    kind = KeyValueCache

    def cache(self, rows, length):
        shape = (rows, self.kv_heads, length, self.head_dim)
        return self.kind(shape, shape, dtype=self.q.weight.dtype, device=self.q.weight.device)


class IgnoresSelectAttention(WithCache):
    kind = IgnoresSelect


class IgnoresSource(MultiHead):
    """Reads zeros instead of a source."""

    def forward(self, x, source, context, cache=None):
        return super().forward(x, None if source is None else self.seen(source), context, cache)

    def seen(self, source):
        return 0 * source


class FiniteMask(Reference):
    """Hides keys by a large negative score instead of minus infinity: a query that sees no key
    attends to all.
    """

    def weights(self, q, k, context, scale, dropout=0.0, scores=None, score_fn=None):
        seen, _ = context.prepared
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) * scale
        return scores.masked_fill(~seen, -1e9).softmax(-1)


class MinusInfinityMask(FiniteMask):
    def weights(self, q, k, context, scale, dropout=0.0, scores=None, score_fn=None):
        seen, _ = context.prepared
        if seen is None:
            return Reference.weights(self, q, k, context, scale, dropout, scores)
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) * scale
        return scores.masked_fill(~seen, -float("inf")).softmax(-1)


TWO = {"model": "encoder_decoder"}
CROSS = TWO | {"decoder": {"cross": {"name": "broken"}}}
