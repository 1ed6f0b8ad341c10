"""The option sets of a component that the laws are checked with."""

import pytest

from xformer_kit.laws.variants import factors, variants
from xformer_kit.norm import NORMS
from xformer_kit.plan import KINDS


def test_a_component_declares_its_variants():
    assert variants("attn", "performer") == [{"heads": 2, "features": 12}]
    assert variants("position", "fire") == [{}]

    class Own:
        variants = [{"eps": 0.1}, {}]

        def __init__(self, dim: int, *, eps: float = 0.2):  # added to the length
            pass

    NORMS.register("own_variants")(Own)
    try:
        assert variants("norm", "own_variants") == Own.variants
    finally:
        NORMS.forget(__name__)


def test_a_subclass_does_not_inherit_variants():
    rotary, xpos = variants("position", "rotary"), variants("position", "xpos")
    assert xpos == [{"span": 8.0, "pairing": "interleaved"}]
    assert not any(variant in rotary for variant in xpos)


def test_variants_of_a_nested_component_are_used_in_the_first_component_with_its_option():
    scaled = {"score": {"name": "talking_heads", "scaled": True}}
    assert [name for name in KINDS["attn"] if scaled in variants("attn", name)] == ["multi_head"]
    assert {"router": {"name": "round_robin"}} in variants("ffn", "moe")


@pytest.mark.parametrize("kind", KINDS)
def test_every_variant_sets_options_of_its_component(kind):
    for name, registry in ((name, KINDS[kind]) for name in KINDS[kind]):
        for variant in variants(kind, name):
            assert variant.keys() <= registry.options(name).keys()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "kernel"])
def test_every_component_is_a_level_of_its_factor(kind):
    assert {node["name"] for node in factors()[kind]} == set(KINDS[kind])
