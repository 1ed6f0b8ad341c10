"""No process imports modules of the current directory, which may be a run of somebody else."""

import os
import subprocess
import sys
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
from tests.forked_train import ROOT, train

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


def test_reproducing_imports_nothing_of_the_current_directory(tmp_path, untrusted, monkeypatch):
    monkeypatch.chdir(untrusted)
    assert reproduction.train(["attn.heads=7"], False) == 2
    assert not (tmp_path / "imported").exists()


def test_the_package_as_a_program_imports_nothing_of_the_current_directory(tmp_path, untrusted):
    """`python -m` puts the current directory first on sys.path."""
    (untrusted / "xformer_kit.py").unlink()  # the module that is named
    for name in ("sitecustomize", "threading"):  # imported before the package
        (untrusted / f"{name}.py").unlink()
    line = [sys.executable, "-m", "xformer_kit", "train", "attn.heads=7"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=untrusted, env=environment, capture_output=True, text=True)
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
    assert (done.returncode, done.stderr.partition(":")[0]) == (2, "attn.heads")
