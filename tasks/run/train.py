"""Trains a run in this process, and reports how it ended: a message and an exit code."""

import contextlib
import hashlib
import json
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks import Config
from tasks.logging import startup, summary
from tasks.process import processes, ranks
from tasks.process.exit_codes import (
    CONFIG,
    DISK_ERRORS,
    DISK_FULL,
    FAILED,
    NONFINITE,
    Ended,
    NoRun,
    StoppedBySignal,
)
from tasks.process.job import Job
from tasks.run.prolonged import with_length
from xformer_kit.config import GROUPS, import_components, read_config
from xformer_kit.data.cache import CacheRemovedError
from xformer_kit.registry import ConfigError
from xformer_kit.text import command_lines as proposed
from xformer_kit.text.printable import printable

log = logging.getLogger("xformer")


def config_digest(config: Config) -> str:
    """Returns the sha256 of a config, independent of the order of its keys, which saving may
    change.
    """
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def train_run(job: Job, write_new: Callable[[], Config] | None = None) -> int:
    """Trains a run in this process, which may be one of several ranks; returns the exit code.

    write_new: writes the files of a new run when its directory is locked, and returns its checked
    config; None: another process has written them, or the run is resumed.
    """
    process, locked = None, False
    run_dir = job.run_dir
    try:
        with processes.run_lock(run_dir):
            config = None if write_new is None else write_new()
            locked = True
            if job.shows_stages:
                startup.show("Importing Lightning")
            import_components(job.components, GROUPS.values())
            from tasks.run.training_process import TrainingProcess

            process = TrainingProcess(config or _saved_config(job), job)
            return process.run()
    except (Exception, KeyboardInterrupt) as error:
        expected = _expected_error(error, run_dir, process)
        if expected is None:
            exit_code = report_crash(error, job, process)
        else:
            # Before it has the lock, the directory may be another run's, or refused.
            exit_code = report_end(expected, job if locked else None)
    if process is not None:
        process.close(exit_code)
    return exit_code


def _saved_config(job: Job) -> Config:
    """Returns the config of a run's directory, which the process that made the job has checked.
    Raises NoRun if it is another one now.
    """
    config = with_length(read_config(job.run_dir), job.max_steps)
    if job.digest not in (None, config_digest(config)):
        raise NoRun(
            f"hydra.run.dir: another process began a run in {job.run_dir} meanwhile. Name another"
            " directory."
        )
    return config


def _expected_error(error: BaseException, run_dir: Path, process: Any) -> BaseException | None:
    """The error to report in one message; None if an error is unexpected."""
    if isinstance(error, (Ended, ConfigError, KeyboardInterrupt)):
        return error
    if isinstance(error, CacheRemovedError):
        return Ended(
            "data.cache: the prepared tokens were removed during the run. They are made again."
        )
    if not isinstance(error, OSError):
        return _cause_in_run(error, process)
    path = error.filename or run_dir
    if error.errno in DISK_FULL:
        return Ended(f"The disk is full ({error.strerror}: {path}). Make room.")
    if error.errno in DISK_ERRORS:
        return Ended(f"{path}: cannot be read or written ({error.strerror}). Put that right.")
    return None


def _cause_in_run(error: BaseException, process: Any) -> Ended | None:
    """The Ended that caused an error, None if there is none: a library that a signal interrupts may
    fail while it cleans up.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Ended):
        cause = cause.__cause__ or cause.__context__
    if cause is None and isinstance(error, AttributeError) and process and process.signals.number:
        # The signal interrupted a constructor.
        cause = StoppedBySignal(process.signals.number, process.signals.step)
    return cause


def report_end(error: BaseException, job: Job | None = None) -> int:
    """Prints an error's message on rank 0 and logs it; returns the exit code. With a run's job, the
    message ends with the command that resumes the run, and is written to ended.json without it.
    """
    if isinstance(error, ConfigError):
        text, code = "\n".join(error.messages), CONFIG
    elif isinstance(error, KeyboardInterrupt):
        text, code = "Stopped at once; what was done since the last checkpoint is lost.", 130
    else:
        text, code = str(error), getattr(error, "code", FAILED)
    if job is not None:
        _write_ended(job.run_dir, code, text, getattr(error, "step", None))
        can_resume = code not in (CONFIG, NONFINITE) and "resume=" not in text
        if can_resume and _saves_checkpoints(job.run_dir):
            text += f" {_resume_hint(job)}"
    if ranks.rank() == 0:
        startup.clear()
        print(printable(text), file=sys.stderr, flush=True)
    ranks.report_to_launcher(text)
    log.info("%s", text)
    return code


def _resume_hint(job: Job) -> str:
    return f"Go on with: {proposed.resume(job.run_dir, job.components)}"


def _write_ended(run_dir: Path, code: int, text: str, step: int | None = None) -> None:
    """Writes ended.json, the exit code, message and step of a run that did not finish, on rank
    0.
    """
    if ranks.rank() == 0:
        with contextlib.suppress(OSError):
            summary.write({"code": code, "text": text, "step": step}, run_dir / summary.ENDED)


def _saves_checkpoints(run_dir: Path) -> bool:
    """Whether a run saves checkpoints, from which it can be resumed."""
    try:
        return bool(read_config(run_dir)["trainer"].get("enable_checkpointing", True))
    except (ConfigError, KeyError):
        return True


def report_crash(error: BaseException, job: Job, process: Any) -> int:
    """Reports an unexpected error, and logs its traceback; returns the exit code."""
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    log.info("%s", text)  # into the file only: warnings also go to the screen
    _write_ended(job.run_dir, FAILED, " ".join(traceback.format_exception_only(error)).strip())
    if ranks.lost_connection(error):
        text = f"Rank {ranks.rank()} lost touch with another rank and stopped."
        if process is not None and (step := process.saved_step()) is not None:
            text += f" The state after step {step:,} is saved. {_resume_hint(job)}"
    elif "out of memory" in str(error).lower():
        fix = "Raise trainer.accumulate, or lower data.batch_size or model sizes."
        text = f"Out of memory. {fix} {error}"
    print(text, file=sys.stderr, flush=True)
    return FAILED
