"""A component without options of its own set has one form in a saved config: its name."""

import pytest

from xformer_kit import compose
from xformer_kit.config import config_yaml

FORMS = {
    "attn.qk_norm": "head",
    "attn.gate": "head",
    "attn.score": "softmax",
    "model.decoder.norm": "layer",
    "model.decoder.position": "alibi",
    "model.decoder.ffn": "mlp",
    "model.decoder.variants.a.norm": "layer",
}


@pytest.mark.parametrize("key", FORMS)
def test_a_name_and_a_mapping_of_a_name_are_saved_alike(key):
    name = FORMS[key]
    more = ["model.decoder.pattern=[base,a]"] if ".variants." in key else []
    forms = [f"{key}={name}", f"{key}={{name: {name}}}", f"{key}.name={name}"]
    texts = {config_yaml(compose([*more, form])) for form in forms}
    assert len(texts) == 1


def test_a_switch_and_components_in_a_list_have_the_form_too():
    assert compose(["attn.qk_norm=true"])["attn"]["qk_norm"] == "head"
    mask = compose(["mask={name: any_of, of: [causal, {name: strided}]}"])["mask"]
    assert mask["of"] == ["causal", "strided"]
