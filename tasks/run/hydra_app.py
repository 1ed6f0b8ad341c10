"""Runs the jobs of a checked command line: each job is a run in its own directory. Hydra
launches those of a multirun or a study; after a multirun, prints the table of its jobs.
"""

import math
import os
import sys
from contextlib import ExitStack, chdir
from functools import partial
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import configure_log, run_job
from hydra.experimental.callback import Callback
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from tasks import Config, Files
from tasks.logging.files import numbered_paths
from tasks.process import ranks
from tasks.process.exit_codes import NoRun
from tasks.process.launched_jobs import check_launcher, job_of_submitit, lost_job, requeued
from tasks.process.processes import end_with_launcher
from tasks.run.early_checks import with_sources
from tasks.run.new_directory import LOCK, check_new_directory
from xformer_kit.config import conf_dir, preflight
from xformer_kit.config.hydra.hydra_session import PRIMARY, VERSION_BASE, initialized
from xformer_kit.config.line.checked_line import CommandLine, words_of_job
from xformer_kit.metrics import VAL_LOSS
from xformer_kit.registry import ConfigError
from xformer_kit.text.command_lines import program
from xformer_kit.text.user_path import user_path

NAMES_OF_DIRECTORIES = ("hydra.run.dir=", "hydra.sweep.")  # words with which a line names one
_sweep_dirs: list[Path] = []  # directories of the multiruns of this process
_progress = ExitStack()  # of the multirun of this process


class CheckMultirun(Callback):
    """Checks the directory of a multirun before Hydra writes into it, and its launcher, and shows
    the progress of jobs that print nothing here. jobs: their number, 0 if it is not known.
    """

    def __init__(self, jobs: int = 0):
        self.jobs = jobs

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        directory = Path(str(config.hydra.sweep.dir))
        try:
            check_launcher(config.hydra.launcher)
            check_new_directory(directory, "hydra.sweep.dir", f"*/{LOCK}")
        except (NoRun, ConfigError) as error:  # Hydra continues after exceptions of its callbacks
            from tasks.run.train import report_end  # takes seconds

            raise SystemExit(report_end(error)) from None
        _sweep_dirs.append(directory.resolve())
        launcher = str(config.hydra.runtime.choices["hydra/launcher"])
        if launcher != "basic":  # Hydra raises its exceptions; otherwise it prints a traceback
            os.environ["HYDRA_FULL_ERROR"] = "1"
        if launcher.startswith("submitit"):
            from tasks.logging.sweep_progress import shown

            _progress.enter_context(shown(directory, launcher, self.jobs))


def run_line(line: CommandLine) -> int:
    """Runs the jobs of a checked command line, or what its flags print; returns the exit code."""
    if line.multirun and ranks.has_launcher():
        from tasks.run.train import report_end

        argument, count = "study" if line.study is not None else "-m", ranks.count()
        return report_end(  # each rank would run all jobs
            NoRun(
                f"{argument}: starts the processes of its runs by itself; got {count} that torchrun"
                f" or SLURM started. Try {program()} with trainer.devices={count}."
            )
        )
    if line.study is not None:
        return _run_study(line)
    job = RunJob(line)
    if line.composed is not None and not line.composed.hydra.callbacks:
        return _run_here(line.composed, job)
    if line.argv[-1:] in (["--info"], ["-i"]):  # the next word would be its value
        line.argv[-1] = "--info=all"
    line.argv.append(f"++hydra.callbacks.multirun._target_={__name__}.CheckMultirun")
    line.argv.append(f"++hydra.callbacks.multirun.jobs={len(line.checked)}")
    exit_code = 0
    with _progress:
        try:
            _run_hydra(line, job)
        except Exception as error:
            if not os.environ.pop("HYDRA_FULL_ERROR", None):
                raise
            print(lost_job(error), file=sys.stderr)
            exit_code = 1
    if _sweep_dirs:
        from tasks.logging.sweep_table import write_sweep_table

        exit_code = write_sweep_table(_sweep_dirs[-1], line.components) or exit_code
    return exit_code or max(job.exit_codes, default=0)


def _run_here(config: DictConfig, job: "RunJob") -> int:
    """Does with the config of a single run what hydra.main does after composing it."""
    from tasks.run.train import report_end

    try:
        directory = Path(str(config.hydra.run.dir))
        job.directory_existed = os.path.exists(directory)  # Path.exists raises for a long name
        if ranks.rank() == 0:
            check_new_directory(directory)
    except (NoRun, ConfigError) as error:
        return report_end(error)
    config.hydra.mode = RunMode.RUN
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    with initialized() as loader:
        context = HydraContext(loader, Callback())  # type: ignore[arg-type]
        result = run_job(job, config, "hydra.run.dir", None, context)
    return int(result.return_value)


def _run_hydra(line: CommandLine, job: "RunJob") -> None:
    """Composes and runs the jobs of a line with hydra.main, or prints what its flags ask for."""
    sys.argv[1:] = line.argv
    hydra.main(version_base=VERSION_BASE, config_path=conf_dir(), config_name=PRIMARY)(job)()


def _run_study(line: Any) -> int:
    """Plans a study and runs it with Hydra's launcher; returns the exit code. Raises ConfigError
    for an invalid study.
    """
    from tasks.study import sweep

    sweep.check_command_line(line)
    if line.study["dry_run"] or line.study["budget"]["match"] == "seconds":
        from tasks.run import trial_run  # takes seconds

        line.timing = trial_run
    if line.study["command"] is None:
        line.compose = with_sources(line.compose)
    _run_hydra(line, RunJob(line))
    return sweep.exit_codes[-1]


class RunJob:
    """Hydra's task function: trains one job of a line, with its checked config. A launcher may
    pickle it for another process.
    """

    def __init__(self, line: CommandLine):
        self.checked = line.checked
        self.flags = line.flags
        # Absolute, because hydra.job.chdir may change the directory.
        self.components = tuple(str(Path.cwd() / user_path(path)) for path in line.components)
        self.directory_existed = False  # before this program created it
        self.exit_codes: list[int] = []  # of the runs of this process

    def __call__(self, composed: DictConfig) -> float:
        """Trains one run; returns its exit code. In a multirun, returns its validation loss for
        sweepers that optimize it, NaN if the run failed.
        """
        hydra_config = HydraConfig.get()
        in_multirun = hydra_config.mode == RunMode.MULTIRUN
        if in_multirun:
            end_with_launcher()
        from tasks.logging import summary  # these take seconds
        from tasks.process.job import Job
        from tasks.run.start import start_or_resume_run, start_run
        from tasks.run.train import report_end

        # A ${ in these is not an interpolation: Hydra has resolved the directories.
        runtime: Any = OmegaConf.to_container(hydra_config.runtime)
        words: Any = OmegaConf.to_container(hydra_config.overrides)
        directory = Path(runtime["output_dir"])
        if directory.name in self.checked:
            config, trial = self.checked[directory.name]
            return _run_job_of_study(config, trial, directory, self.components)
        try:
            config = self._checked(words["task"], runtime["cwd"])
        except ConfigError as error:
            self.exit_codes.append(report_end(error))
            return math.nan
        owner = job_of_submitit(hydra_config.job.id) if in_multirun else ""
        is_named = any(word.startswith(NAMES_OF_DIRECTORIES) for word in words["hydra"])
        returned = False
        if (owner or not is_named) and ranks.rank() == 0:
            directory, returned = claim_directory(directory, owner, is_named)
        in_line = runtime["choices"].get("hydra/launcher", "basic") == "basic"
        options: Any = {"in_multirun": in_multirun, "quiet": in_multirun and not in_line}
        start = partial(start_run, config, directory, self.components, **options)
        start = partial(start, directory_existed=self.directory_existed)
        if returned:
            job = Job(directory, self.components, **options)
            start = partial(start_or_resume_run, config, job)
        exit_code = requeued(start)
        self.exit_codes.append(exit_code)
        if not in_multirun:
            return exit_code
        results = summary.read(directory) if exit_code == 0 else None
        return float((results or {}).get(VAL_LOSS, "nan"))

    def _checked(self, words: list[str], directory: str) -> Config:
        """Returns the checked config of a job's words. Those that another sweeper has made are
        composed and checked now; directory: that in which the line was given.
        """
        if (key := words_of_job(words)) not in self.checked:
            with chdir(directory):
                self.checked[key] = preflight([*self.flags, *words]).configs[0]
        return self.checked[key]


def _run_job_of_study(
    config: Config, trial: Config | None, directory: Path, components: Files
) -> float:
    """Trains one run of a study; returns its exit code, or 0 if another process trains it. trial:
    see Job.
    """
    from tasks.process.job import Job
    from tasks.run.start import start_or_resume_run
    from tasks.study.external import run_command
    from tasks.study.state import claim, record_failure

    job = Job(
        directory,
        components,
        in_multirun=True,
        quiet=True,
        silent=True,
        key=directory.name,
        trial=trial,
    )
    with claim(directory) as lock:
        if lock is None:
            return 0.0
        if "command" in config:  # of another trainer
            exit_code = requeued(partial(run_command, config, directory, lock.fileno()))
        else:
            exit_code = requeued(partial(start_or_resume_run, config, job))
        record_failure(directory, exit_code)
        return float(exit_code)


def claim_directory(directory: Path, owner: str, is_named: bool) -> tuple[Path, bool]:
    """Creates the directory and a file .claim in it; uses directory_2, directory_3, ... if another
    process has claimed it and the line does not name it. Returns the directory, and whether the job
    `owner` has claimed it before: it has returned to the queue.
    """
    for candidate in [directory] if is_named else numbered_paths(directory):
        candidate.mkdir(parents=True, exist_ok=True)
        try:
            with open(candidate / ".claim", "x") as file:
                file.write(owner)
            return candidate, False
        except FileExistsError:
            if owner and (candidate / ".claim").read_text() == owner:
                return candidate, True
    return directory, False
