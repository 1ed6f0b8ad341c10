"""Values of a config.json that no class of transformers writes: each ends in a ConfigError."""

import itertools

import pytest

from tests.hub.old_files import keys_of, small
from xformer_kit.hub.family import model_types
from xformer_kit.hub.identify import identify
from xformer_kit.pretrained import composition_of
from xformer_kit.registry import ConfigError

WRONG = (5, -3, 0, 2.5, "x", [1], ["x"], [None], {"a": 1}, {"full_attention": 2}, True, None)
TYPE = "must have a type and a range that the model's class in transformers accepts"


def other_errors(read, model_type: str, keys) -> dict:
    """What `read` raises besides ConfigError, for each wrong value of each key."""
    found = {}
    for key, value in itertools.product(sorted(keys), WRONG):
        try:
            read(small(model_type, **{key: value}))
        except ConfigError:
            continue
        except Exception as error:
            found[key, str(value)] = repr(error)
    return found


@pytest.mark.parametrize("model_type", model_types())
def test_a_wrong_value_of_any_key_is_a_config_error(model_type):
    assert other_errors(identify, model_type, keys_of(model_type)) == {}


@pytest.mark.extended
@pytest.mark.parametrize("model_type", ["qwen3", "gemma3_text", "bert"])
def test_a_wrong_value_of_a_key_is_a_config_error_of_the_composition(model_type):
    assert other_errors(composition_of, model_type, keys_of(model_type)) == {}


SENTENCES = [
    ("qwen3", {"rope_parameters": [1]}, f"rope_parameters: {TYPE}; got [1]."),
    ("qwen3", {"rope_parameters": "x"}, f"rope_parameters: {TYPE}; got 'x'."),
    ("qwen3", {"rope_theta": "x"}, f"rope_theta: {TYPE}; got 'x'."),
    ("qwen3", {"layer_types": 5}, f"layer_types: {TYPE}; got 5."),
    ("qwen3", {"num_hidden_layers": "x"}, f"num_hidden_layers: {TYPE}; got 'x'."),
    ("qwen3_moe", {"mlp_only_layers": "x"}, f"mlp_only_layers: {TYPE}; got 'x'."),
    ("t5", {"feed_forward_proj": 3}, f"feed_forward_proj: {TYPE}; got 3."),
    ("qwen3", {"tie_word_embeddings": "yes"}, "tie_word_embeddings: must be true or false; got "),
    (
        "qwen3",
        {"layer_types": ["full_attention"] * 2},
        "layer_types: must have one item for each of the 8 layers; got 2.",
    ),
    (
        "qwen3",
        {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}},
        "rope_parameters.low_freq_factor: is needed with rope_type=llama3.",
    ),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("model_type", "keys", "sentence"), SENTENCES)
def test_the_key_that_cannot_be_read_is_named(model_type, keys, sentence):
    with pytest.raises(ConfigError) as error:
        identify(small(model_type, **keys))
    (message,) = error.value.messages
    assert message.startswith(f"config.json: {sentence}")
