"""Runs of `train.py` on a short text, in processes of their own, and what they measured."""

import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def train(folder: Path, words: list[str]) -> tuple[dict[int, dict[str, float]], dict[str, Any]]:
    """Trains a run with these overrides. Returns the rows of speed.csv by step, and summary.json.

    folder: of the text, the cache and the run. Nothing is logged or sampled.
    """
    corpus = folder / "text.txt"
    if not corpus.exists():
        corpus.write_text("the cat sat on a mat and saw what it had not seen before\n" * 3000)
    place = Path(tempfile.mkdtemp(dir=folder)) / "run"
    line = [
        *("data=text", f"data.path={corpus}", "tokenizer=byte", "data.num_workers=0"),
        *("trainer.accumulate=1", "schedule.warmup=2", "trainer.log_every_n_steps=1"),
        *("trainer.val_every=null", "trainer.limit_val_batches=1", "trainer.sample=false"),
        *("logger=none", f"hydra.run.dir={place}", *words),
    ]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    environment.pop("OMP_NUM_THREADS", None)
    command = [sys.executable, str(ROOT / "train.py"), *line]
    subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environment)
    rows = list(csv.DictReader((place / "speed.csv").read_text().splitlines()))
    measured = {
        int(row["step"]): {name: float(value) for name, value in row.items() if value}
        for row in rows
    }
    return measured, json.loads((place / "summary.json").read_text())
