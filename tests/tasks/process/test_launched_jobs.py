"""Jobs that submitit runs: on this machine, and with stand-ins for SLURM's commands."""

import importlib.util
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tasks.process.launched_jobs import check_launcher
from tests import forked_train
from tests.tasks.process import slurm_commands
from tests.train_processes import TINY, environment, finish, start, text_file, wait_for
from xformer_kit.config import preflight
from xformer_kit.registry import ConfigError


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    return text_file(tmp_path_factory)


def sweep(home: Path, text: Path, *more: str, **variables: str) -> forked_train.ForkedTrain:
    """Starts a multirun of one job in home/sweep/0."""
    words = ["-m", *TINY, f"data.path={text}", f"hydra.sweep.dir={home / 'sweep'}", *more]
    return forked_train.ForkedTrain(words, home, environment(home) | variables)


@pytest.mark.extended
def test_a_job_that_returns_to_the_queue_resumes_its_run(tmp_path, text):
    """SIGUSR2, which SLURM sends before the time limit, stops the job; its metrics are those of a
    run that nothing stopped.
    """
    variables = slurm_commands.install(tmp_path / "commands")
    job = sweep(
        tmp_path,
        text,
        "hydra/launcher=submitit_slurm",
        "hydra.launcher.max_num_timeout=3",
        **variables,
    )
    run = tmp_path / "sweep" / "0"
    wait_for(job, run, 20)
    os.kill(int((tmp_path / "commands" / "100.pid").read_text()), signal.SIGUSR2)
    finish(job)
    stages = (run / "train.log").read_text()
    assert "Stopped by SIGUSR1" in stages and "Going on at step" in stages
    assert [path.name for path in run.parent.glob("[0-9]*")] == ["0"]
    finish(start(tmp_path, whole := tmp_path / "whole", text))
    assert (run / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


@pytest.mark.extended
def test_a_killed_job_is_a_sentence(tmp_path, text):
    job = sweep(tmp_path, text, "hydra/launcher=submitit_local", "trainer.max_steps=100000")
    wait_for(job, tmp_path / "sweep" / "0", 1)
    subprocess.run(["pkill", "-KILL", "-f", f"{tmp_path / 'sweep'}"], check=True)
    _, err = job.communicate(timeout=60)
    assert job.returncode == 1 and "Traceback" not in err
    assert "hydra/launcher: not all jobs have a result: " in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"tasks_per_node": 2, "nodes": 1},
            r"^hydra.launcher.tasks_per_node: .*\.devices=2",
        ),
        ({"nodes": 3}, r"^hydra.launcher.nodes: .* got 3\."),
    ],
)
def test_a_job_is_one_task(options, message):
    with pytest.raises(ConfigError, match=message):
        check_launcher(options)
    check_launcher({"tasks_per_node": 1, "nodes": None, "n_jobs": 4})


@pytest.mark.parametrize(
    ("launcher", "package", "message"),
    [
        ("ray", "ray", r"xformer_kit\[ray\]"),
        ("submitit_slurm", "submitit", r"xformer_kit\[slurm\]"),
        ("submitit_slum", None, "Did you mean 'submitit_slurm'"),
    ],
)
def test_a_launcher_that_is_not_installed_is_named_with_its_package(
    launcher, package, message, monkeypatch
):
    if package and importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    with pytest.raises(ConfigError, match=message) as error:
        preflight(["-m", f"hydra/launcher={launcher}", "attn.heads=2,4"])
    assert len(error.value.faults) == 1
