"""The node `logger`, which names one logger or several."""

import pytest

from xformer_kit import ConfigError
from xformer_kit.config import compose, config_hash, config_yaml, preflight
from xformer_kit.config.faults.check import check
from xformer_kit.config.line.to_overrides import to_overrides
from xformer_kit.config.options.logger_options import as_loggers
from xformer_kit.config.saved.config_file import parse_config
from xformer_kit.study.run_key import run_key

WANDB = compose([])["logger"]
OPTIONS = {key: value for key, value in WANDB.items() if key != "name"}
TWO = {"wandb": OPTIONS | {"project": "x"}, "tensorboard": {}}


def logger(*words, **options):
    return compose([*words], data=False, **options)["logger"]


@pytest.mark.parametrize(
    "line",
    [
        "logger=[wandb,tensorboard] logger.wandb.project=x",
        "logger.wandb.project=x logger=[wandb,tensorboard]",
        "logger=[wandb,tensorboard] logger.project=x",
        "logger.tensorboard={} logger.project=x",
    ],
)
def test_several_are_a_mapping_of_names_to_options(line):
    assert logger(*line.split()) == TWO


def test_the_saved_form_of_several_is_read_on_a_command_line():
    assert logger("logger={wandb: {project: x}, tensorboard: {}}") == TWO


def test_one_is_a_name_next_to_its_options():
    one = WANDB | {"project": "x"}
    assert logger("logger=wandb", "logger.project=x") == one
    assert logger("logger=[wandb]", "logger.wandb.project=x") == one
    assert logger("logger=[tensorboard,wandb]", "logger.tensorboard=null") == WANDB


def test_options_of_one_hold_over_those_of_all():
    line = ["logger=[wandb,tensorboard]", "logger.project=x", "logger.wandb.project=y"]
    assert logger(*line)["wandb"]["project"] == "y"


def test_a_sweep_stays_a_sweep():
    assert len(preflight(["-m", "logger=wandb,csv"]).configs) == 2
    assert len(preflight(["-m", "logger=[wandb,csv],csv"]).configs) == 2


def test_a_file_chooses_several_and_a_command_line_replaces_them(tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\n"
        "defaults:\n  - override /logger: [wandb, tensorboard]\n"
        "logger: {wandb: {project: x}}\n"
    )
    (tmp_path / "experiment" / "added.yaml").write_text(
        "# @package _global_\nlogger: {project: x, tensorboard: {}}\n"
    )
    config_dir = {"config_dir": str(tmp_path)}
    for name in ("mine", "added"):
        assert logger(f"experiment={name}", **config_dir) == TWO
        assert logger(f"experiment={name}", "logger=csv", **config_dir) == {"name": "csv"}


def test_they_are_saved_checked_and_written_as_overrides_but_not_hashed():
    config = compose(["logger=[wandb,tensorboard]", "logger.project=x"])
    assert parse_config(config_yaml(config), "config.yaml") == config and check(config) == []
    assert compose(to_overrides(config)) == config
    one = compose(["logger=none"])
    assert config_hash(config) == config_hash(one) and run_key(config, "") == run_key(one, "")
    assert as_loggers(config["logger"]) == TWO
    assert as_loggers(one["logger"]) == {"none": {}}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (
            "logger=[wandb,tensorbord]",
            "logger: no logger is called 'tensorbord'. Did you mean 'tensorboard'?",
        ),
        ("logger=[]", "logger: must be a name; got []. Known: csv, mlflow, none, tensorboard,"),
        (
            "logger=[none,csv]",
            "logger: none is for a run without another logger; got ['none', 'csv'].",
        ),
        (
            "logger=[wandb,tensorboard] logger.projct=x",
            "logger.projct: none of the loggers wandb, tensorboard has such an option. Did you mean"
            " 'project'?",
        ),
        (
            "logger=[wandb,tensorboard] logger.wandb.projct=x",
            "logger.wandb.projct: logger 'wandb' has no option 'projct'. Did you mean 'project'?",
        ),
        (
            "logger=[csv,tensorboard] logger.project=x",
            "logger.project: none of the loggers csv, tensorboard has such an option.",
        ),
        (
            "logger=wandb logger.tensorboard.tags=[a]",
            "logger.tensorboard.tags: logger 'tensorboard' has no option 'tags'.",
        ),
        (
            "logger=mlflow logger.tracking_uri=mlruns",
            "logger.tracking_uri: must be a server or a database; got mlruns. Try http:",
        ),
        (
            "logger=[mlflow,csv] logger.mlflow.tracking_uri=http://a:b@c",
            "logger.mlflow.tracking_uri: must have no password, because it is saved with",
        ),
        ("logger=mlflow logger.experiment=", "logger.experiment: must not be empty; got ''."),
        ("logger.run_name=", "logger.run_name: must not be empty; got ''. Try null."),
        ("logger.x_axis=epoch", "logger.x_axis: no choice is called 'epoch'. Known: step, tokens."),
        ("logger.log_model=best", "logger.log_model: "),
        ("logger=[wandb,csv] logger.wandb=3", "logger.wandb: must be a mapping of options"),
    ],
)
def test_faults_name_the_logger(line, fault):
    with pytest.raises(ConfigError) as refused:
        compose(line.split())
    (found,) = refused.value.messages
    assert found.startswith(fault), found
