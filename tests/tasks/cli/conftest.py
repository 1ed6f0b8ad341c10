"""A finished run for the commands that read runs."""

import shutil

import pytest

from tasks.run.start import start_run
from tests.tasks.cli.local_task import write_task
from tests.tasks.conftest import TINY
from xformer_kit import compose


@pytest.fixture(scope="session")
def trained(text, tmp_path_factory):
    """The run of `finished`, which no test changes, in a directory with its cache."""
    home = tmp_path_factory.mktemp("finished")
    words = ["trainer.max_steps=4", "trainer.val_every=2", "position=learned", "model.max_len=48"]
    words += ["schedule.warmup=2", f"data.path={text}", "metrics.accuracy={}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        patch.setattr("tasks.modules.language_modeling.GENERATED_TOKENS", 8)
        assert start_run(compose([*TINY, *words]), home / "run") == 0
    return home / "run"


@pytest.fixture
def finished(trained, tmp_path, monkeypatch):
    """A run of four steps, whose positions end at 48 tokens; a copy for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(trained.parent / "cache"))
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def task(tmp_path):
    """A local task file of lm-eval."""
    return write_task(tmp_path)
