"""No process imports modules of the current directory, which may be a run of somebody else."""

import subprocess
from pathlib import Path

import pytest
from train_processes import (
    TIMEOUT,
    TINY,
    command,
    environment,
    text,  # noqa: F401
)

from tasks.cli import reproduction
from tests.forked_train import train
from xformer_kit import ConfigError

pytestmark = pytest.mark.extended

# Modules that a process would import first: at the start of the interpreter, of the standard
# library, torch and this package.
NAMES = [
    "sitecustomize",
    "queue",
    "threading",
    "json",
    "torch",
    "yaml",
    "joblib",
    "tasks",
    "xformer_kit",
]


@pytest.fixture
def untrusted(tmp_path) -> Path:
    """A directory whose modules write their name to ../imported and end the process."""
    folder = tmp_path / "untrusted"
    folder.mkdir()
    imported = str(tmp_path / "imported")
    for name in NAMES:
        code = f"open({imported!r}, 'a').write('{name} '); raise SystemExit('untrusted {name}')"
        (folder / f"{name}.py").write_text(code)
    return folder


SHORT = [
    *TINY,
    "trainer.max_steps=4",
    "schedule.warmup=2",
    "trainer.val_every=null",
    "trainer.checkpoint_every=null",
]


@pytest.mark.slow
def test_workers_of_a_sweep_and_their_loaders(tmp_path, untrusted, text):  # noqa: F811
    line = command("-m", *SHORT, f"data.path={text}", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    done = subprocess.run(
        line,
        cwd=untrusted,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_workers_of_a_launcher_and_their_ranks(tmp_path, untrusted, text):  # noqa: F811
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    words = [
        "-m",
        *SHORT,
        f"data.path={text}",
        f"hydra.sweep.dir={tmp_path / 'sweep'}",
        "hydra/launcher=joblib",
    ]
    done = train([*words, "trainer.devices=2"], untrusted, environment(tmp_path))
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
    assert done.returncode == 0, done.stderr


def test_a_train_py_of_the_current_directory_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("open('imported', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        reproduction, "__file__", str(tmp_path / "packages" / "tasks" / "cli" / "reproduction.py")
    )
    with pytest.raises(ConfigError, match=r"needs train\.py of a checkout"):
        reproduction.train(["model=decoder"], False)
    assert not (tmp_path / "imported").exists()
