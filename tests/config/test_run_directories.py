"""A sweep's directory stands for its runs, and messages name a run that exists."""

import os
from pathlib import Path

import pytest

from xformer_kit.config import preflight
from xformer_kit.config.line.overrides import expand
from xformer_kit.config.saved.run_directories import (
    example_of_run,
    named_run,
    newest_run,
    run_directories,
    saved_runs,
)
from xformer_kit.registry import ConfigError


@pytest.fixture
def write(tmp_path, monkeypatch):
    """write("outputs/a", time) makes a run's directory below the current one."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, time: int = 0, checkpoint: bool = True) -> Path:
        run = Path(name)
        (run / "checkpoints").mkdir(parents=True)
        (run / "config.yaml").write_text("")
        os.utime(run / "config.yaml", (time, time))
        if checkpoint:
            (run / "checkpoints" / "last.ckpt").write_text("")
        return run

    return write


def test_a_sweeps_directory_stands_for_its_runs_in_the_order_of_their_numbers(write):
    runs = [write(f"outputs/sweep/{i}") for i in (0, 1, 2, 10)]
    single = write("outputs/single")
    write("outputs/sweep/.hydra")
    write("outputs/single/copy")
    assert run_directories(["outputs/sweep", single, runs[0]]) == [*runs, single]
    assert run_directories(["outputs", "none"]) == [single, Path("none")]


def test_the_newest_run_is_one_to_three_levels_below_outputs(write):
    assert newest_run() is None
    write("elsewhere/run", time=9)
    write("outputs/a/b/c/d", time=9)
    write("outputs/a/.hydra", time=9)
    assert newest_run() is None
    for time, name in enumerate(("outputs/run", "outputs/task/run", "outputs/task/sweep/0"), 1):
        assert newest_run() != write(name, time=time) == newest_run()
    write("outputs/task/begun", time=9, checkpoint=False)
    assert newest_run() == Path("outputs/task/sweep/0")


def test_latest_and_a_path_below_outputs_name_a_run_unless_a_path_of_the_name_exists(write):
    assert named_run("latest") == "latest"
    old, new = write("outputs/a/1", time=1), write("outputs/a/2", time=2)
    assert saved_runs() == [old, new]
    words = ("latest", "a/1", "./a/1", "a", str(old), "none", "seed=1", "")
    assert [named_run(word) for word in words] == [
        str(new),
        str(old),
        str(old),
        "outputs/a",
        str(old),
        "none",
        "seed=1",
        "",
    ]
    assert expand(["resume=latest", "init_from=a/1", "name=latest", "resume='a/1'"]) == [
        f"resume={new}",
        f"init_from.run={old}",
        "name=latest",
        "resume='a/1'",
    ]
    write("latest")
    assert named_run("latest") == "latest"


def test_a_message_names_a_run_that_exists_or_how_one_begins(write):
    assert example_of_run() == "There is no run below outputs: xformer train begins one."
    write("outputs/a run")
    assert example_of_run() == "Name a run's directory such as outputs/a run."
    assert example_of_run(None, "Try {}.", repr) == "Try 'outputs/a run'."
    write("sweep/0")
    assert example_of_run("sweep") == "Name a run's directory such as sweep/0."


def test_the_directory_of_a_sweep_is_not_used_again(tmp_path):
    line = ["-m", "attn.heads=2,4", f"hydra.sweep.dir={tmp_path}"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.yaml").touch()
    assert len(preflight(line).configs) == 2
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "config.yaml").touch()
    with pytest.raises(ConfigError) as error:
        preflight(line)
    assert error.value.messages == (
        f"hydra.sweep.dir: holds a sweep already, which stays as it is; got {tmp_path}. Name"
        " another directory.",
    )
    assert len(preflight([*line, "hydra.sweep.subdir=${hydra.job.override_dirname}"]).configs) == 2
