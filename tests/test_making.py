"""From a config or a run's directory to a model: what is refused before anything is built."""

import hashlib
import json

import pytest

from xformer_kit import ConfigError, build, compose, load
from xformer_kit.config import config_yaml


def test_parts_that_a_run_was_begun_with_are_named(tmp_path):
    (tmp_path / "config.yaml").write_text(config_yaml(compose([])))
    digest = hashlib.sha256(b"").hexdigest()
    (tmp_path / "parts.json").write_text(json.dumps({"my_parts.py": digest}))
    with pytest.raises(ConfigError) as error:
        load(tmp_path)
    assert str(error.value) == (
        f"{tmp_path}: was begun with components of its own; got no file called 'my_parts.py' (sha256 {digest[:12]}). "
        "Give the file that you trust under that name: load(run, parts=[FILE])."
    )
    (tmp_path / "my_parts.py").write_text("changed = 1")
    with pytest.raises(ConfigError, match=r"my_parts.py must be as it was when the run began"):
        load(tmp_path, parts=str(tmp_path / "my_parts.py"))
    (tmp_path / "my_parts.py").write_text("")
    with pytest.raises(ConfigError, match=r"has no checkpoint yet"):  # beyond its components
        load(tmp_path, parts=str(tmp_path / "my_parts.py"))


def test_what_is_no_whole_config_is_one_sentence():
    with pytest.raises(ConfigError) as error:
        build({}, 65)
    [sentence] = error.value.faults
    assert sentence.startswith(
        "build: takes a whole config, such as compose(['model=decoder']) gives; got one without model, "
    )
