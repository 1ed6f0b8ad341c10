from pathlib import Path
from typing import Any

import pytest

from tasks.run.start import start_run
from tests.train_processes import SMALL_DECODER, text_file
from xformer_kit import compose

TINY = [
    *SMALL_DECODER,
    "data.batch_size=8",
    "trainer.max_steps=20",
    "trainer.log_every_n_steps=1",
    "trainer.val_every=10",
    "trainer.checkpoint_every=5",
    "logger=none",
    "trainer.accelerator=cpu",
]


text = pytest.fixture(scope="session")(text_file)


@pytest.fixture
def config(text, tmp_path, monkeypatch):
    """config(*overrides) is the checked config of a tiny run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def config(*words: str) -> dict[str, Any]:
        shorter = next((steps for steps in (1, 2) if f"trainer.max_steps={steps}" in words), None)
        warmup = 2 if shorter is None else shorter - 1  # optimizer steps
        return compose([*TINY, f"schedule.warmup={warmup}", f"data.path={text}", *words])

    return config


@pytest.fixture
def begin(config, tmp_path, monkeypatch):
    """begin("name", *overrides) trains a tiny run in this process and returns (exit code,
    directory). The texts that it writes at a validation have 8 tokens instead of 96, which would
    take a quarter of its time.
    """
    monkeypatch.setattr("tasks.modules.language_modeling.GENERATED_TOKENS", 8)

    def begin(name: str, *words: str) -> tuple[int, Path]:
        return start_run(config(*words), tmp_path / name), tmp_path / name

    return begin
