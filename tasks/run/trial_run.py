"""Measures the time of a run for a study: of an optimizer step, and of a whole run of one step,
with process, model, validation, checkpoint and sample.
"""

import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

from tasks import Config, Files
from tasks.process.job import Job
from tasks.run.short_fit import fit
from tasks.run.start import start_or_resume_run

WARMUP_STEPS, MEASURED_STEPS, MAX_STEPS = 2, 5, 500  # steps
MIN_SECONDS = 0.4  # of the measured steps


class _Stopwatch(Callback):
    """Records when each step ends. Ends training after the measured steps, and after more of them
    until they take MIN_SECONDS.
    """

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(self, trainer: Any, task: Any, *_: Any) -> None:
        if task.device.type == "cuda":
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        measured = self.ends[WARMUP_STEPS - 1 :]
        enough = len(measured) > MEASURED_STEPS and measured[-1] - measured[0] >= MIN_SECONDS
        trainer.should_stop = enough


def step_seconds(config: Config) -> float:
    """Returns the median seconds of an optimizer step, with its data, on one device and without
    compilation.
    """
    stopwatch = _Stopwatch()
    # Lightning validates when it is stopped.
    trainer = {**config["trainer"], "compile": False, "limit_val_batches": 0}
    fit({**config, "trainer": trainer}, MAX_STEPS, stopwatch)
    ends = stopwatch.ends[WARMUP_STEPS - 1 :]
    return statistics.median(after - before for before, after in pairwise(ends))


def trial_seconds(config: Config, components: Files) -> float:
    """Trains a config for one step in a temporary directory, twice, as a study does; returns the
    seconds of the second time: the first starts the process that later runs are forks of.

    A trial that fails counts for the time that it took: the study's own run then has the message.
    """
    trainer = {**config["trainer"], "max_time": {"milliseconds": 1}}
    config = {**config, "trainer": trainer, "logger": {"name": "csv"}}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first", "later"):
            job = Job(Path(folder, name), components, in_multirun=True, quiet=True, silent=True)
            began = time.perf_counter()
            start_or_resume_run(config, job)
    return time.perf_counter() - began
