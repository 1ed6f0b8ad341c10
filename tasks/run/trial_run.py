"""Measures the time of a whole run of one step: process, model, validation, checkpoint, sample."""

import tempfile
import time
from pathlib import Path

from tasks import Config, Files
from tasks.process.job import Job
from tasks.run.start import start_or_resume_study_run


def trial_seconds(config: Config, components: Files) -> tuple[float, float]:
    """Trains a config for one step in a temporary directory, twice, as a study does; returns the
    seconds of both: the first starts the process that later runs are forks of.

    A trial that fails counts for the time that it took: the study's own run then has the message.
    """
    trainer = {**config["trainer"], "max_time": {"milliseconds": 1}}
    config = {**config, "trainer": trainer, "logger": {"name": "csv"}}
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first", "later"):
            job = Job(Path(folder, name), components, in_multirun=True, quiet=True, silent=True)
            began = time.perf_counter()
            start_or_resume_study_run(config, job)
            seconds.append(time.perf_counter() - began)
    return seconds[0], seconds[1]
