"""Flags of the command line that cannot be used, and keys and configs that are not there."""

import shlex

import pytest
import yaml

from tasks.cli import main
from xformer_kit import ConfigError
from xformer_kit.config import compose, config_yaml, preflight

REFUSED = {
    "--resolve": "--resolve: belongs to --cfg. Add --cfg job.",
    "--package model": "--package: belongs to --cfg. Add --cfg job.",
    "--config-path=mine": (
        "--config-path=mine: would replace the configs of this package. Add your own: --config-dir"
        " DIR."
    ),
    "--config-name=mine": (
        "config: cannot be composed: Cannot find primary config 'mine'. Check that it's in your"
        " config search path. Change it, or leave it out."
    ),
    "--experimental-rerun run.pickle": (
        "--experimental-rerun: is not supported. Continue a run with resume=RUN, or train it again"
        " with xformer reproduce RUN."
    ),
    "--run -m": "--run --multirun: only one of them can be given. Leave the others out.",
    "~hidden_size": (
        "hidden_size: cannot be composed: Could not delete from config. 'hidden_size' does not"
        " exist. Change it, or leave it out."
    ),
    "~model.dim=5": (
        "model.dim: cannot be composed: Could not delete from config. The value of 'model.dim' is"
        " 128 and not 5. Change it, or leave it out."
    ),
    "~experiment=copy": (
        "experiment: cannot be composed: Could not delete 'experiment=copy'. No match in the"
        " defaults list. Change it, or leave it out."
    ),
    "extra=[token_shift]": (
        "extra: cannot be composed: Error merging override ++extra=[token_shift]. Try"
        " extra.NAME={}."
    ),
}


@pytest.mark.parametrize("line", REFUSED)
def test_the_fault_is_one_sentence_with_its_fix(line):
    with pytest.raises(ConfigError) as error:
        preflight(shlex.split(line))
    assert error.value.messages == (REFUSED[line],)


@pytest.mark.parametrize(
    "line", ["--cfg job --resolve", "--cfg job --package model", "~attn.heads"]
)
def test_what_is_proposed_is_accepted(line):
    preflight(shlex.split(line))


@pytest.mark.parametrize("package", ["", "--package attn", "--package trainer.max_steps"])
def test_cfg_prints_the_config_that_a_run_saves(package):
    """With the components' own names, and numbers as they are saved."""
    words = ["attn.qk_norm=true", "attn=mqa", "position=rope", "trainer.max_steps=1e3"]
    words += ["model.decoder.pattern=[base,plain]", "optim.lr=1e-3"]
    words += ["model.decoder.variants.plain.attn.qk_norm=false"]
    shown = preflight(["--cfg", "job", *package.split(), *words]).shown
    config = compose(words, data=False)
    parts = {"": config, "--package attn": config["attn"], "--package trainer.max_steps": 1000}
    assert shown == config_yaml(parts[package]).removesuffix("...\n")
    assert config["attn"]["qk_norm"] == "head" and config["trainer"]["max_steps"] == 1000
    assert config["model"]["decoder"]["variants"]["plain"]["attn"] == {"qk_norm": "none"}


@pytest.mark.parametrize("flag", [["--cfg", "job"], ["-c", "job", "-p", "study"]])
def test_the_config_of_a_study_is_printed_and_nothing_runs(flag, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "study=norm_placement", "model.dim=64", *flag]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    study = shown if "-p" in flag else shown.pop("study")
    assert (study["name"], study["baseline"]) == ("norm_placement", {"placement": "pre"})
    assert "-p" in flag or shown == compose(["model.dim=64", "study=norm_placement"])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("flag", ["--cfg hydra", "--cfg all", "--info plugins"])
def test_what_only_one_run_can_show_is_refused_for_a_study(flag):
    with pytest.raises(ConfigError) as error:
        preflight(["study=norm_placement", *flag.split()])
    message = f"{flag}: is for one run, and a study has several. Try --cfg job."
    assert error.value.messages == (message,)
