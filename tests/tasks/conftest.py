from pathlib import Path
from typing import Any

import pytest

from tasks.run.start import start_run
from tests.forked_train import train
from tests.train_processes import SMALL_DECODER, environment, text_file
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


STUDY = [
    "study=norm_placement",
    "study.factors={placement: [post]}",
    "study.seeds=2",
    "study.budget={match: none, by: null}",
    "model.dim=32",
    "model.layers=1",
    "attn.heads=2",
    "data=text",
    "tokenizer=byte",
    "data.seq_len=16",
    "data.batch_size=4",
    "trainer.max_steps=5",
    "trainer.limit_val_batches=1",
    "trainer.log_every_n_steps=1",
    "logger=none",
]


@pytest.fixture(scope="session")
def study_home(tmp_path_factory) -> Path:
    """The directory in which a study of two variants at two seeds was run."""
    home = tmp_path_factory.mktemp("study")
    (home / "text.txt").write_text(
        "the cat sat on a mat and saw what it had not seen before. " * 60
    )
    done = train([*STUDY, "data.path=text.txt"], home, environment(home))
    assert done.returncode == 0, done.stderr
    return home


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
