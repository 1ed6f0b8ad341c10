"""The options of the logger wandb, offline."""

import json
import shutil

import pytest
import torch

from tasks.logging.loggers import create_loggers
from tests.tasks.command_lines import output
from tests.tasks.wandb_records import finished_records


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "wandb_data"))  # of artifacts


def of_type(records, name):
    """The contents of the records of a type."""
    return [getattr(one, name) for one in records if one.WhichOneof("record_type") == name]


def checkpoints(records):
    """The artifacts with checkpoints."""
    return [one for one in of_type(records, "artifact") if one.type == "model"]


def x_axes(records):
    """{metric: metric on its x axis}."""
    found = of_type(records, "metric")
    every = {one.name or one.glob_name: one for one in found}
    return {name: one.step_metric for name, one in every.items()}


def test_the_run_has_its_name_and_tokens_as_x_axis(config, tmp_path):
    words = ["logger=wandb", "logger.run_name='lr ${optim.lr}'", "logger.x_axis=tokens"]
    words.append("optim.lr=0.5")
    loggers, (message,) = create_loggers(config(*words), tmp_path)
    assert message.startswith("W&B logs offline")
    loggers({"loss": 1.0, "tokens": 64.0}, 2)
    loggers.checkpoint(2)
    loggers.finish({}, 0)
    records = finished_records(tmp_path)
    assert of_type(records, "run")[0].display_name == "lr 0.5"
    assert x_axes(records) == {"step": "", "tokens": "", "*": "tokens"}
    (row,) = of_type(records, "history")
    logged = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in row.item}
    assert {name: logged[name] for name in ("loss", "tokens", "step")} == {
        "loss": 1.0,
        "tokens": 64.0,
        "step": 2,
    }
    assert checkpoints(records) == []  # off by default


@pytest.mark.extended
def test_a_run_counts_tokens_and_its_last_artifact_is_a_directory_that_generates(
    begin, tmp_path, capsys
):
    code, folder = begin("run", "logger=wandb", "logger.log_model=true")
    assert code == 0
    records = finished_records(folder)
    assert x_axes(records)["*"] == "step"
    rows = [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in row.item}
        for row in of_type(records, "history")
    ]
    tokens = {row["step"]: row["tokens"] for row in rows if "tokens" in row}
    assert tokens == {step: step * 8 * 16 for step in range(1, 21)}
    (artifact,) = checkpoints(records)
    assert sorted(artifact.aliases) == ["latest", "step-20"]
    for file in artifact.manifest.contents:
        target = tmp_path / "downloaded" / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file.local_path, target)
    saved = torch.load(tmp_path / "downloaded" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] == 20
    code, text, _ = output(capsys, "generate", tmp_path / "downloaded", "--prompt", "the")
    assert (code, text.startswith("the")) == (0, True)


@pytest.mark.extended
def test_all_uploads_each_saved_step(begin):
    _, folder = begin("run", "logger=wandb", "logger.log_model=all", "trainer.max_steps=7")
    found = checkpoints(finished_records(folder))
    assert [sorted(one.aliases) for one in found] == [
        ["latest", f"step-{step}"] for step in (5, 7, 7)
    ]
