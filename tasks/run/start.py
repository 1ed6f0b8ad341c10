"""Starts a run in its directory, in the processes that it needs."""

import contextlib
import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tasks import Config, Files
from tasks.logging import startup, summary
from tasks.logging.files import replace_text
from tasks.run import fork_server, processes, ranks
from tasks.run.checkpoints import BEST, LAST, PREVIOUS
from tasks.run.exit_codes import CONFIG, Ended, NoRun
from tasks.run.job import Job
from tasks.run.train import config_digest, report_end, train_run
from xformer_kit.config import config_yaml, read_config
from xformer_kit.config.saved import check_components, component_hashes
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.registry import command_lines as proposed

COMPONENTS_ARGUMENT = "components=[FILE]"  # the argument of train.py for files of own components
PROGRESS = (  # what a new run never overwrites
    f"checkpoints/{LAST}",
    f"checkpoints/{PREVIOUS}",
    "summary.json",
)
LEFTOVERS = (
    "metrics.csv",
    "speed.csv",
    "samples.csv",
    "components.json",
    "profile.txt",
    "trace.json",
    summary.ENDED,
)
WRITTEN = (
    *("config.yaml", "tokenizer.json", "source_tokenizer.json", "train.log", summary.SUMMARY),
    *LEFTOVERS,
    *(f"checkpoints/{name}" for name in (LAST, PREVIOUS, BEST)),
)


def start_run(
    config: Config,
    run_dir: Path,
    components: Files = (),
    *,
    existed: bool | None = None,
    **options: Any,
) -> int:
    """Start a run in its directory and return its exit code. `options`: fields of a
    Job. `existed`: whether the directory existed before, if it has been created since.

    If the config turns out to be wrong once the data are read, what was written is removed again.
    """
    job = Job(run_dir, components, **options)
    existed = run_dir.exists() if existed is None else existed
    fresh = _is_fresh(run_dir)
    try:
        begin = partial(_new_directory, config, run_dir, components)
        if ranks.has_launcher():
            job = replace(job, run_dir=ranks.agree_on(run_dir, begin))
        else:
            begin()
        code = train_in_processes(config, job)
    except (Ended, ConfigError) as error:
        code = report_end(error)
    # The table of a multirun lists its failed jobs.
    if code == CONFIG and fresh and not job.listed and not ranks.has_launcher():
        _clear(run_dir, config, existed)
    return code


def _is_fresh(run_dir: Path) -> bool:
    """Whether a directory is missing, empty, or contains only .claim."""
    return not run_dir.exists() or {path.name for path in run_dir.iterdir()} <= {".claim"}


def _clear(run_dir: Path, config: Config, existed: bool) -> None:
    """Remove the files of a run without a checkpoint, and its directory if it did not exist before.
    Files of another process's run in the same directory are kept.
    """
    with contextlib.suppress(OSError, ConfigError, NoRun), processes.run_lock(run_dir):
        if (
            config_digest(read_config(run_dir)) != config_digest(config)
            or (run_dir / "checkpoints" / LAST).exists()
        ):
            return
        for path in run_dir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not existed:
            run_dir.rmdir()


def ensure_run(config: Config, job: Job) -> int:
    """Start or resume a run of a study. Returns the exit code, 0 also if it is already finished."""
    begun = any((job.run_dir / "checkpoints" / name).exists() for name in (LAST, PREVIOUS))
    try:
        if begun:
            # The saved config: options that the key omits, such as the logger, may differ.
            config = read_config(job.run_dir)
            check_components(job.run_dir, job.components, COMPONENTS_ARGUMENT)
        if summary.read(job.run_dir) is not None:
            return 0
        if not begun:
            _new_directory(config, job.run_dir, job.components)
        return train_in_processes(config, job)
    except (Ended, ConfigError) as error:
        return report_end(error)


def check_places(run_dir: Path) -> None:
    """Raises NoRun if the path of a file of the run is a directory, or checkpoints/ is a file."""
    if path := next((run_dir / name for name in WRITTEN if (run_dir / name).is_dir()), None):
        raise NoRun(
            f"{path}: must be a file, which the run rewrites; got a directory. Move it away."
        )
    if (folder := run_dir / "checkpoints").is_file():
        raise NoRun(
            f"{folder}: must be a directory, which holds the checkpoints; got a file. Move it away."
        )


def train_in_processes(config: Config, job: Job) -> int:
    check_places(job.run_dir)
    job = replace(job, digest=config_digest(config))
    if ranks.has_launcher():
        return train_run(job)
    count = processes.device_count(config["trainer"])
    if (machines := config["trainer"].get("num_nodes", 1)) > 1:
        raise config_error(
            "trainer.num_nodes",
            "several machines are started by torchrun or SLURM",
            got=f"{machines} in one process",
            fix="Try torchrun --nnodes N --nproc-per-node M train.py ...",
        )
    if job.listed and count == 1 and fork_server.usable():
        return fork_server.launch(job)
    if count > 1 and job.shows_stages:
        startup.show(f"Starting {count} processes")
    return processes.launch(job, count) if job.listed or count > 1 else train_run(job)


def _new_directory(config: Config, run_dir: Path, components: Files) -> None:
    """Write the config of a run. Raises NoRun if the directory already holds another one."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with processes.run_lock(run_dir):  # nothing of a running run is touched
        check_places(run_dir)
        if any((run_dir / name).exists() for name in PROGRESS):
            raise NoRun(
                f"hydra.run.dir: {run_dir} holds a run with checkpoints already; nothing is"
                " overwritten. Name another directory, or go on with it:"
                f" {proposed.resume(run_dir, components)}"
            )
        for name in LEFTOVERS:
            (run_dir / name).unlink(missing_ok=True)
        replace_text(run_dir / "config.yaml", config_yaml(config))
        if components:
            (run_dir / "components.json").write_text(
                json.dumps(component_hashes(components), indent=2) + "\n"
            )
