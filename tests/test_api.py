"""build and load: errors that are raised before a model is built."""

import hashlib
import json

import pytest
import torch

from tasks.run.start import start_run
from xformer_kit import ConfigError, build, compose, load
from xformer_kit.config import config_yaml


def test_the_components_of_a_run_are_named_in_the_error(tmp_path):
    (tmp_path / "config.yaml").write_text(config_yaml(compose([])))
    digest = hashlib.sha256(b"").hexdigest()
    (tmp_path / "components.json").write_text(json.dumps({"my_components.py": digest}))
    with pytest.raises(ConfigError) as error:
        load(tmp_path)
    assert (
        str(error.value) == f"{tmp_path}: was begun with components of its own; got no file called"
        f" 'my_components.py' (sha256 {digest[:12]}). Give the file that you trust under that name:"
        " load(run, components=[FILE])."
    )
    (tmp_path / "my_components.py").write_text("changed = 1")
    with pytest.raises(ConfigError, match=r"my_components.py must be as it was when the run began"):
        load(tmp_path, components=str(tmp_path / "my_components.py"))
    (tmp_path / "my_components.py").write_text("")
    with pytest.raises(ConfigError, match=r"has no checkpoint yet"):  # beyond its components
        load(tmp_path, components=str(tmp_path / "my_components.py"))


def test_what_is_no_config_is_one_error():
    for config in (None, ["attn.heads=8"]):
        with pytest.raises(ConfigError) as error:
            build(config, 65)
        [sentence] = error.value.messages
        assert sentence == (
            f"build: needs a config, e.g. compose(['model=decoder']), or a mapping; got {config!r}."
        )


def test_a_vocabulary_of_two_sizes_is_refused():
    small = ["model.dim=16", "model.layers=1", "attn.heads=2"]
    config = compose([*small, "model.vocab_size=1000"])
    with pytest.raises(ConfigError) as error:
        build(config, vocab_size=500)
    assert error.value.messages == (
        (
            "model.vocab_size: must equal the vocab_size of build(...); got 1000 and 500."
            " Give one of them, or the same size twice."
        ),
    )
    with pytest.raises(ConfigError, match="got 1000 and 2000"):
        build(config, 2000)
    for model in (build(config), build(config, 1000), build(compose(small), 1000)):
        assert model(torch.zeros(1, 2, dtype=torch.int64)).shape[-1] == 1000


def test_a_run_may_have_more_tokens_than_its_tokenizer(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("the cat sat on a mat and saw " * 50)
    words = [
        "model.dim=16",
        "model.layers=1",
        "attn.heads=2",
        "model.vocab_size=1000",
        "tokenizer=byte",
        "data=text",
        f"data.path={tmp_path}/text.txt",
        "data.seq_len=16",
        "data.batch_size=2",
        "trainer.max_steps=1",
        "logger=none",
        "trainer.accelerator=cpu",
    ]
    assert start_run(compose(words), tmp_path / "run") == 0
    assert load(tmp_path / "run").tokenizer.size < 1000
