"""A file of the line names a component with its options in one place."""

import pytest

from xformer_kit import ConfigError, compose

FILE = "attn: {name: latent, heads: 4}\nnorm: {name: layer, bias: false}\n"


@pytest.mark.extended
@pytest.mark.parametrize("group", ["experiment", "preset"])
def test_a_component_has_the_defaults_of_its_own_and_the_options_of_the_file(group, tmp_path):
    (tmp_path / "mine.yaml").write_text(FILE)
    found = compose([f"{group}={tmp_path / 'mine.yaml'}"], data=False)
    same = compose(["attn=latent", "attn.heads=4", "norm=layer", "norm.bias=false"], data=False)
    assert found == same


@pytest.mark.parametrize("group", ["experiment", "preset"])
def test_the_line_replaces_it(group, tmp_path):
    (tmp_path / "mine.yaml").write_text(FILE)
    file = f"{group}={tmp_path / 'mine.yaml'}"
    found = compose([file, "attn=multi_head", "norm=rms"], data=False)
    assert found == compose(["attn=multi_head", "norm=rms"], data=False)


def test_a_file_over_a_preset_leaves_out_what_the_new_component_does_not_have(tmp_path):
    (tmp_path / "mine.yaml").write_text(f"defaults: [/preset/llama3]\n{FILE}")
    config = compose([f"preset={tmp_path / 'mine.yaml'}"], data=False)
    assert config["attn"]["name"] == "latent" and "kv_heads" not in config["attn"]
    norm = {"name": "layer", "eps": 1e-5, "weight": True, "unit_offset": False, "bias": False}
    assert config["norm"] == norm
    assert config["position"]["theta"] == 5e5


def test_an_experiment_differs_from_its_preset(tmp_path):
    text = "defaults: [{override /preset: gpt2}]\nposition: {name: rotary, theta: 500}\n"
    (tmp_path / "mine.yaml").write_text(text)
    config = compose([f"experiment={tmp_path / 'mine.yaml'}"], data=False)
    assert (config["position"]["name"], config["position"]["theta"]) == ("rotary", 500)
    assert config["norm"] == compose(["preset=gpt2"], data=False)["norm"]


def test_an_option_that_no_component_has_is_refused(tmp_path):
    (tmp_path / "mine.yaml").write_text("attn: {name: latent, kv_heads: 2}\n")
    with pytest.raises(ConfigError, match=r"attn\.kv_heads: attn 'latent' has no option 'kv_head"):
        compose([f"experiment={tmp_path / 'mine.yaml'}"], data=False)
