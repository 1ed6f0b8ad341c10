"""Published models with so few layers that no layer is of one of the kinds of their family."""

import pytest

from tests.hub.old_files import small
from xformer_kit.parity import measures
from xformer_kit.parity.cases import CASES
from xformer_kit.parity.pairs import make_pair
from xformer_kit.plan import model_plan
from xformer_kit.pretrained import composition_of, differing_words
from xformer_kit.registry import ConfigError

EXPERTS = {"n_routed_experts": 8, "moe_intermediate_size": 11, "num_experts_per_tok": 2}
DEEPSEEK = {**EXPERTS, "num_key_value_heads": 6, "n_group": 1, "topk_group": 1}
FILES = [
    *(("gemma3_text", {}, layers, "local") for layers in (1, 2)),
    *(("exaone4", {}, layers, "local") for layers in (1, 2)),
    ("glm4_moe", {**EXPERTS}, 1, "dense"),
    ("deepseek_v3", {**DEEPSEEK, "first_k_dense_replace": 3}, 3, "dense"),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("model_type", "keys", "layers", "variant"), FILES)
def test_options_of_layers_that_a_file_does_not_have_are_accepted(
    model_type, keys, layers, variant
):
    composition = composition_of(small(model_type, **keys, num_hidden_layers=layers))
    (stack,) = model_plan(composition.config).stacks
    assert [block.variant for block in stack.blocks] == [variant] * layers
    differing_words(composition)


def test_other_faults_of_such_a_file_are_still_refused():
    file = small("gemma3_text", num_hidden_layers=2, head_dim=-1)
    with pytest.raises(ConfigError, match=r"head_dim \(attn\.head_dim\): must be at least 1"):
        composition_of(file)


@pytest.mark.extended
@pytest.mark.parametrize(
    "name",
    ["gemma3", "exaone4", "glm4 moe", "deepseek v3", "qwen3_moe with dense layers", "modernbert"],
)
def test_it_computes_what_transformers_computes(name, tmp_path):
    pytest.importorskip("transformers")
    case = CASES[name]
    keys = {**case.config, "num_hidden_layers": 1}
    keys |= {"layer_types": keys["layer_types"][:1]} if keys.get("layer_types") else {}
    assert measures.logits(make_pair(case._replace(config=keys), tmp_path)) < 1e-10
