"""Files of published models without their weights: config.json of earlier versions, and presets."""

import json
import os
from pathlib import Path

import pytest
import torch

from tests.hub.old_files import OLD_FILES, SIZES
from xformer_kit.hub.architecture import architecture
from xformer_kit.hub.family import model_types, of_type
from xformer_kit.model.build import build_model
from xformer_kit.pretrained import composition_of
from xformer_kit.registry import ConfigError

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

PATH = Path(__file__).parents[2] / "conf" / "preset"
PRESETS = sorted(path.stem for path in PATH.glob("*.yaml"))
# Values that the components cannot compute.
REFUSED = [
    ("qwen2", "layer_types", ["sliding_attention"]),
    ("qwen2_moe", "layer_types", ["sliding_attention"]),
    ("qwen2_moe", "shared_expert_intermediate_size", 1409),
    ("smollm3", "layer_types", ["sliding_attention"]),
    ("gemma", "use_bidirectional_attention", True),
    ("gemma2", "query_pre_attn_scalar", None),
    ("granite", "attention_multiplier", None),
    ("exaone4", "sliding_window_pattern", "LLLG"),
    ("phi3", "lm_head_bias", True),
    ("mistral", "hidden_act", "laplace"),
]
pytestmark = pytest.mark.extended


def computed(config_json: dict) -> dict:
    """The function that a config.json is composed to."""
    composition = composition_of(config_json)
    with torch.device("meta"):
        model = build_model(composition.config, composition.vocab_size)
    return architecture(composition.config, model)


@pytest.mark.parametrize("name", OLD_FILES, ids=lambda name: name.replace(" ", "-"))
def test_an_earlier_file_is_read_as_transformers_reads_it(name):
    model_type = name.split()[0]
    old = {**SIZES, **OLD_FILES[name], "model_type": model_type}
    config = transformers.CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(old)))
    now = json.loads(config.to_json_string(use_diff=False))
    assert computed(old) == computed(now)


def test_the_guide_lists_every_family_and_has_the_file_of_one():
    guide = (PATH.parents[1] / "docs/guide/published_models.md").read_text()
    assert (PATH.parents[1] / "xformer_kit/hub/families/arcee.py").read_text() in guide
    rows = {name: of_type(name) for name in model_types()}
    lines = [f"| `{name}` | `{f.preset}` | {f.architectures[0]} |" for name, f in rows.items()]
    assert [line for line in lines if line not in guide] == []


def test_every_family_has_its_preset():
    assert {of_type(model_type).preset for model_type in model_types()} <= {*PRESETS}


@pytest.mark.parametrize(("model_type", "key", "value"), REFUSED)
def test_what_cannot_be_composed_is_refused(model_type, key, value):
    with pytest.raises(ConfigError, match=rf"^config\.json: {key}: "):
        composition_of({**SIZES, "model_type": model_type, key: value})
