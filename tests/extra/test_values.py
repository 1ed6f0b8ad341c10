"""The hook `values`: every attention either gives its values to extras, or is refused."""

import pytest

from tests.messages import messages
from xformer_kit.attention import ATTENTIONS
from xformer_kit.extra import EXTRAS, Extra
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition


@pytest.fixture(autouse=True)
def halved():
    @EXTRAS.register("halved_values")
    class HalvedValues(Extra):
        def __init__(self):
            super().__init__()

        def values(self, v, x, layer):
            return v / 2

    yield
    EXTRAS.forget(HalvedValues.__module__)


def composition(name, extra):
    """The first of these compositions that is not refused without the extra."""
    for model, position in (("decoder", "rotary"), ("decoder", "none"), ("encoder", "none")):
        if not faults(tiny_config(model, attn=name, position=position)):
            return tiny_config(model, attn=name, position=position, extra=extra)
    raise AssertionError(f"{name} is refused everywhere")


@pytest.mark.parametrize("name", list(ATTENTIONS))
def test_an_attention_changes_its_values_or_is_refused(name):
    config = composition(name, {"halved_values": {}})
    if found := messages(faults(config)):
        assert found == [
            f"extra.halved_values: changes values, which attn '{name}' does not give to extras. Use"
            " attn=multi_head, or leave it out."
        ]
        return
    plain, halved = Composition(composition(name, {}), ""), Composition(config, "")
    difference = plain.hidden(plain.model(), plain.ids) - halved.hidden(halved.model(), halved.ids)
    assert difference.abs().max() > 1e-3


def test_multi_head_gives_its_values():
    assert not faults(tiny_config(attn="multi_head", extra={"halved_values": {}}))


def test_a_model_without_attention_has_no_values():
    config = tiny_config(decoder={"layout": ["ffn"]}, extra={"halved_values": {}}, position="none")
    assert (
        "extra.halved_values: changes values of attentions, and no layer has one. Leave it out."
    ) in messages(faults(config))
