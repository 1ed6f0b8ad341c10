"""Starts a run in its directory, in as many processes as it needs."""

import contextlib
import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tasks import Config, Files
from tasks.checkpoints.checkpoints import BEST, LAST, PREVIOUS, has_checkpoint
from tasks.logging import startup, summary
from tasks.logging.files import replace_text
from tasks.process import fork_server, processes, ranks
from tasks.process.exit_codes import CONFIG as CONFIG_EXIT_CODE
from tasks.process.exit_codes import Ended, NoRun
from tasks.process.job import Job
from tasks.run.init_from import INIT_FROM
from tasks.run.new_directory import check_new_directory
from tasks.run.prolonged import PROLONGED
from tasks.run.train import config_digest, report_end, train_run
from xformer_kit.config import config_yaml, read_config
from xformer_kit.config.saved.config_file import COMPONENTS, component_hashes
from xformer_kit.config.saved.saved_run import read_run
from xformer_kit.files.saved_files import check_stays_inside
from xformer_kit.registry import ConfigError, config_error

COMPONENTS_ARGUMENT = "components=[FILE]"  # the argument for the user's component files
# Left by a run that ended before its first checkpoint; a new run in its directory removes them.
REMOVED_AT_START = (
    "metrics.csv",
    "speed.csv",
    "samples.csv",
    "norms.csv",
    "mlflow_id.txt",
    COMPONENTS,
    PROLONGED,
    INIT_FROM,
    "profile.txt",
    "trace.json",
    summary.ENDED,
)
RUN_FILES = (  # files that a run rewrites: none of them may be a directory or a link
    *("config.yaml", "tokenizer.json", "source_tokenizer.json", "train.log", summary.SUMMARY),
    *REMOVED_AT_START,
    *(f"checkpoints/{name}" for name in (LAST, PREVIOUS, BEST)),
)


def start_run(
    config: Config,
    run_dir: Path,
    components: Files = (),
    *,
    directory_existed: bool | None = None,
    **options: Any,
) -> int:
    """Starts a new run in its directory and returns its exit code.

    options: fields of its Job. directory_existed: whether the directory existed before this program
    created it; None: this program has not created it.

    If the run ends with the exit code of a config error, its directory is emptied again, except
    in a multirun, with torchrun or SLURM, or if it had files before.
    """
    job = Job(run_dir, components, **options)
    if directory_existed is None:
        directory_existed = run_dir.exists()
    # An empty directory may hold .claim, with which hydra_app.py reserves it.
    was_empty = {path.name for path in run_dir.glob("*")} <= {".claim"}
    try:
        if ranks.has_launcher():  # all ranks use the directory of rank 0
            create = partial(_create_run_directory, config, job)
            job = replace(job, run_dir=ranks.share_run_directory(run_dir, create))
        exit_code = train_in_processes(config, job, is_new=not ranks.has_launcher())
    except (Ended, ConfigError) as error:
        exit_code = report_end(error)
    # Files of a failed job of a multirun are kept, because its table lists the job.
    if (
        exit_code == CONFIG_EXIT_CODE
        and was_empty
        and not job.in_multirun
        and not ranks.has_launcher()
    ):
        _remove_run_directory(run_dir, config, directory_existed)
    return exit_code


def start_or_resume_run(config: Config, job: Job) -> int:
    """Starts or resumes a run of a study, or of a job that has returned to a queue. Returns its
    exit code, 0 if it is already finished.
    """
    try:
        check_stays_inside(job.run_dir)
        if has_saved_state := has_checkpoint(job.run_dir / "checkpoints"):
            # Options that do not identify the run, such as the logger, are those of the saved
            # config.
            config = read_run(job.run_dir, job.components, COMPONENTS_ARGUMENT)
        if summary.read(job.run_dir) is not None:  # the run is finished
            return 0
        if not has_saved_state:
            _create_run_directory(config, job)
        return train_in_processes(config, job)
    except (Ended, ConfigError) as error:
        return report_end(error)


def train_in_processes(config: Config, job: Job, is_new: bool = False) -> int:
    """Trains a run in this process or in new processes, one per device, and returns its exit code.
    tasks/process/processes.py has the table of all cases. is_new: whether its directory is not
    created yet.
    """
    process_count = processes.device_count(config["trainer"])
    machines = config["trainer"].get("num_nodes", 1)
    if is_new and process_count == machines == 1 and not job.in_multirun:
        check_new_directory(job.run_dir)
        return train_run(job, partial(_write_run_files, config, job))
    if is_new:
        _create_run_directory(config, job)
    _check_file_types(job.run_dir)
    # With the digest, a training process notices that config.yaml is that of another run.
    job = replace(job, digest=config_digest(config))
    if ranks.has_launcher():
        return train_run(job)
    if machines > 1:
        raise config_error(
            "trainer.num_nodes",
            "several machines are started by torchrun or SLURM",
            got=f"{machines} in one process",
            fix="Try torchrun --nnodes N --nproc-per-node M -m xformer_kit train ...",
        )
    if job.in_multirun and process_count == 1 and fork_server.is_supported():
        return fork_server.launch(job)
    if process_count > 1 and job.shows_stages:
        startup.show(f"Starting {process_count} processes")
    if job.in_multirun or process_count > 1:
        return processes.launch(job, process_count)
    return train_run(job)


def _create_run_directory(config: Config, job: Job) -> None:
    """Creates the directory of a new run and writes its files. Raises NoRun as `_write_run_files`,
    and if the directory holds files of no run, or is being trained.
    """
    check_new_directory(job.run_dir)
    with processes.run_lock(job.run_dir):
        _write_run_files(config, job)


def _write_run_files(config: Config, job: Job) -> Config:
    """Writes config.yaml and components.json into the directory of a new run, which is locked;
    returns the config. Raises NoRun if the directory holds a run that has a checkpoint or a
    summary.
    """
    run_dir = job.run_dir
    _check_file_types(run_dir)
    if has_checkpoint(run_dir / "checkpoints") or (run_dir / summary.SUMMARY).exists():
        hint = summary.continue_hint(f"{run_dir}", job.components)
        fix = f". {hint}" if summary.diverged(run_dir) else f", or {hint[0].lower()}{hint[1:]}"
        raise NoRun(
            f"hydra.run.dir: {run_dir} holds a run with checkpoints already; nothing is"
            f" overwritten. Name another directory{fix}"
        )
    for name in REMOVED_AT_START:
        (run_dir / name).unlink(missing_ok=True)
    replace_text(run_dir / "config.yaml", config_yaml(config))
    if job.components:
        hashes = json.dumps(component_hashes(job.components), indent=2)
        replace_text(run_dir / COMPONENTS, f"{hashes}\n")
    return config


def _check_file_types(run_dir: Path) -> None:
    """Raises NoRun if the path of one of the run's files is a directory or a link, or checkpoints/
    a file.
    """
    for name in RUN_FILES:
        found = ""
        if (path := run_dir / name).is_symlink():  # last.ckpt becomes previous.ckpt by its name
            found = f"a link to {path.readlink()}. Replace it with a copy"
        elif path.is_dir():
            found = "a directory. Move it away"
        if found:
            raise NoRun(f"{path}: must be a file, which the run rewrites; got {found}.")
    if (folder := run_dir / "checkpoints").is_file():
        raise NoRun(
            f"{folder}: must be a directory, which holds the checkpoints; got a file. Move it away."
        )


def _remove_run_directory(run_dir: Path, config: Config, directory_existed: bool) -> None:
    """Removes all content of the directory of a run without a checkpoint; if it did not exist
    before the run, also the directory, and outputs/NAME and outputs if they are empty then. Does
    nothing if another process uses the directory or has started its own run in it.
    """
    with contextlib.suppress(OSError, ConfigError, NoRun), processes.run_lock(run_dir):
        if read_config(run_dir) != config or (run_dir / "checkpoints" / LAST).exists():
            return
        for path in run_dir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not directory_existed:
            run_dir.rmdir()
            if run_dir.resolve().parents[1].name == "outputs":  # outputs/NAME/TIME
                for empty in run_dir.resolve().parents[:2]:
                    empty.rmdir()  # ends here if it holds other runs
