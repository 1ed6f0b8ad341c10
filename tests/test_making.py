"""From a config or a run's directory to a model: what is refused before anything is built."""

import json

import pytest

from xformer_kit import ConfigError, build, compose, load
from xformer_kit.config import config_yaml


def test_parts_that_a_run_was_begun_with_are_named(tmp_path):
    (tmp_path / "config.yaml").write_text(config_yaml(compose([])))
    (tmp_path / "parts.json").write_text(json.dumps({"my_parts.py": "0"}))
    with pytest.raises(ConfigError) as error:
        load(tmp_path)
    assert str(error.value) == (
        f"{tmp_path}: was begun with parts of its own, my_parts.py; got none of that name. "
        "Give load(run, parts=['my_parts.py'])."
    )
    (tmp_path / "my_parts.py").write_text("")
    with pytest.raises(ConfigError, match=r"^tokenizer: must be a file that a run saved"):  # beyond its parts
        load(tmp_path, parts=str(tmp_path / "my_parts.py"))


def test_what_is_no_whole_config_is_one_sentence():
    with pytest.raises(ConfigError) as error:
        build({}, 65)
    [sentence] = error.value.faults
    assert sentence.startswith(
        "build: takes a whole config, such as compose(['model=decoder']) gives; got one without model, "
    )
