"""Every preset is a composition of its family, at any size."""

from pathlib import Path

import pytest

from xformer_kit import ConfigError, compose
from xformer_kit.export import published_form
from xformer_kit.hub.family import model_types, of_type

PRESETS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf/preset").glob("*.yaml"))
SMALL = ["model.dim=96", "model.layers=6", "attn.heads=4"]
# Whisper's encoder reads a spectrogram there.
NOT_IN_TRANSFORMERS = {
    "transformer",
    "transformer_two_norms",
    "nanogpt",
    "nanochat_d12",
    "whisper",
}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_of_a_family_at_any_size(preset):
    """Those of a family's name at a small size; with published sizes, such as qwen3_0_6b, at
    those.
    """
    families = [name for name in model_types() if preset.startswith(of_type(name).preset)]
    is_published = preset not in {of_type(name).preset for name in families}
    sized = is_published and preset not in NOT_IN_TRANSFORMERS
    config = compose([f"preset={preset}", *(() if sized else SMALL)], data=False)
    assert config["name"] == preset
    if preset in NOT_IN_TRANSFORMERS:
        with pytest.raises(ConfigError, match="of no published family"):
            published_form(config, 1000, families or ["gpt2", "bart"])
    else:
        assert published_form(config, 1000, families)[1]["model_type"] in families


@pytest.mark.parametrize("preset", ["gpt2", "llama", "bert", "t5", "mixtral", "deepseek_v3"])
def test_a_preset_is_of_its_family_at_the_default_size(preset):
    config = compose([f"preset={preset}"], data=False)
    families = [name for name in model_types() if of_type(name).preset == preset]
    assert published_form(config, 1000, families)[1]["model_type"] in families


@pytest.mark.parametrize("preset", ["gemma3", "qwen3_next", "modernbert", "cohere2", "smollm3"])
def test_a_model_of_fewer_layers_than_its_pattern_needs_not_use_all_its_variants(preset):
    for layers in (1, 2):
        compose([f"preset={preset}", f"model.layers={layers}"], data=False)


def test_what_no_layer_of_the_whole_pattern_uses_is_refused_in_a_cut_one():
    words = ["preset=gemma3", "model.layers=2", "model.decoder.pattern=[local]"]
    with pytest.raises(ConfigError, match=r"position\.theta: no layer uses it"):
        compose([*words, "model.decoder.variants.local.position.theta=4"], data=False)


def test_nanogpt_is_the_experiment_of_its_recipe():
    """The experiment states the same architecture, with its sizes and training."""
    preset = compose(["preset=nanogpt"], data=False)
    words = ["experiment=nanogpt_cpu", "data.path=train.py"]
    experiment = compose(words, data=False)
    assert experiment["attn"] == {**preset["attn"], "heads": 4}
    for kind in ("mask", "position", "norm", "placement"):
        assert experiment[kind] == preset[kind]
    assert experiment["ffn"] == {**preset["ffn"], "expand": 4}
