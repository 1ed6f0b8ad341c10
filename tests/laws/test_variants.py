"""The option sets of a component that the laws try."""

import pytest

from xformer_kit.laws.variants import factors, variants
from xformer_kit.norm import NORMS
from xformer_kit.plan import KINDS


def test_a_component_brings_its_own():
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


def test_one_that_builds_on_another_does_not_inherit_them():
    rotary, xpos = variants("position", "rotary"), variants("position", "xpos")
    assert xpos == [{"span": 8.0, "pairing": "interleaved"}]
    assert not any(variant in rotary for variant in xpos)


def test_those_of_a_nested_component_are_tried_once_in_the_first_that_takes_it():
    scaled = {"score": {"name": "talking_heads", "scaled": True}}
    assert [name for name in KINDS["attn"] if scaled in variants("attn", name)] == ["multi_head"]
    assert {"router": {"name": "round_robin"}} in variants("ffn", "moe")


@pytest.mark.parametrize("kind", KINDS)
def test_every_variant_is_made_of_options(kind):
    for name, registry in ((name, KINDS[kind]) for name in KINDS[kind]):
        for variant in variants(kind, name):
            assert variant.keys() <= registry.options(name).keys()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "kernel"])
def test_every_component_is_tried(kind):
    assert {node["name"] for node in factors()[kind]} == set(KINDS[kind])
