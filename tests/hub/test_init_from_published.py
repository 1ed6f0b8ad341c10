"""init_from=PATH of a published model: the run has the architecture that `load` composes."""

import json

import pytest

from tests.hub.old_files import small
from xformer_kit import compose
from xformer_kit.config.line.source_model import OF_RUN
from xformer_kit.parity.cases import CASES
from xformer_kit.plan import KINDS
from xformer_kit.pretrained import composition_of

transformers = pytest.importorskip("transformers")
TASKS = {  # whether the model has (an encoder, a decoder)
    (False, True): "language_modeling",
    (True, False): "masked_language_modeling",
    (True, True): "denoising",
}


# One of each architecture; a fifth of them has layers of several kinds.
NAMES = {case.architecture: name for name, case in CASES.items()}.values()


@pytest.mark.parametrize("name", NAMES)
def test_the_architecture_is_that_of_the_files(name, tmp_path):
    case = CASES[name]
    config = getattr(transformers, case.architecture).config_class(**case.config)
    config.architectures = [case.architecture]
    config_json = config.to_json_string(use_diff=False)
    (tmp_path / "config.json").write_text(config_json)
    expected = composition_of(json.loads(config_json)).config
    task = TASKS["encoder" in expected["model"], "decoder" in expected["model"]]
    found = compose([f"init_from={tmp_path}", f"task={task}"], data=False)
    for kind in (*KINDS, "extra"):
        assert found.get(kind) == expected.get(kind), kind
    for key in expected["model"].keys() - OF_RUN:
        assert found["model"][key] == expected["model"][key], key


def test_files_with_fewer_layers_than_a_pattern_compose(tmp_path):
    """No layer of two has full attention, whose rotary base Gemma 3 states."""
    (tmp_path / "config.json").write_text(json.dumps(small("gemma3_text", num_hidden_layers=2)))
    config = compose([f"init_from={tmp_path}", "task=language_modeling"], data=False)
    assert config["model"]["decoder"]["pattern"] == ["local", "local", "base"]
    assert config["model"]["layers"] == 2
