"""Runs with the callbacks of a test file's FILE, and a logger whose values can be read."""

import pytest
from lightning.pytorch import loggers

from tasks.logging.loggers import CREATE
from tasks.logging.run_logger import OfRun, RunLogger
from tasks.run.start import start_run
from tests.tasks.csv_rows import rows
from tests.user_components import forget_user_components
from xformer_kit.config.options.callbacks import CALLBACKS


@pytest.fixture
def run(config, tmp_path, request):
    """run(*overrides) trains a run with the file's callbacks; returns (exit code, directory)."""
    file, count = tmp_path / "lightning_callbacks.py", 0
    file.write_text(request.module.FILE)

    def run(*words: str):
        nonlocal count
        folder, count = tmp_path / f"run{count}", count + 1
        made = config(f"components=[{file}]", *words)
        return start_run(made, folder, (str(file),)), folder

    run.file = str(file)
    yield run
    forget_user_components([CALLBACKS])


@pytest.fixture
def with_logger(monkeypatch, tmp_path):
    """Lightning's CSVLogger in place of logger=wandb, and a function that reads its values."""
    folders = []

    class CSVLoggerOfRun(OfRun, loggers.CSVLogger):
        def end(self, status):
            loggers.CSVLogger.save(self)
            super().end(status)

    def create(options, config, run_dir):
        folders.append(tmp_path / f"logged{len(folders)}")
        return RunLogger(CSVLoggerOfRun(str(folders[-1]), name="", version="")), None

    monkeypatch.setitem(CREATE, "wandb", create)
    return lambda: [rows(folder / "metrics.csv") for folder in folders]
