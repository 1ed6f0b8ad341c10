"""Runs the jobs of a checked command line: each job is a run in its own directory. Hydra
launches those of a multirun or a study; after a multirun, prints the table of its jobs.
"""

import math
import os
import sys
from contextlib import chdir
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

_sweep_dirs: list[Path] = []  # directories of the multiruns of this process


class CheckDirectory(Callback):
    """Checks the directory of a multirun before Hydra writes into it."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        directory = Path(str(config.hydra.sweep.dir))
        try:
            check_new_directory(directory, "hydra.sweep.dir", f"*/{LOCK}")
        except (NoRun, ConfigError) as error:  # Hydra continues after exceptions of its callbacks
            from tasks.run.train import report_end  # takes seconds

            raise SystemExit(report_end(error)) from None
        _sweep_dirs.append(directory.resolve())


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
    line.argv.append(f"++hydra.callbacks.directory._target_={__name__}.CheckDirectory")
    _run_hydra(line, job)
    exit_code = 0
    if _sweep_dirs:
        from tasks.logging.sweep_table import write_sweep_table

        exit_code = write_sweep_table(_sweep_dirs[-1], line.components)
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
        from tasks.logging import summary
        from tasks.run.start import start_run  # takes seconds
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
        named = ("hydra.run.dir=", "hydra.sweep.")
        is_named = any(word.startswith(named) for word in words["hydra"])
        if not is_named and ranks.rank() == 0:
            directory = claim_directory(directory)
        exit_code = start_run(
            config,
            directory,
            self.components,
            in_multirun=in_multirun,
            quiet=in_multirun and runtime["choices"].get("hydra/launcher", "basic") != "basic",
            directory_existed=self.directory_existed,
        )
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
    from tasks.run.start import start_or_resume_study_run
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
    with claim(directory) as is_claimed:
        if not is_claimed:
            return 0.0
        exit_code = start_or_resume_study_run(config, job)
        record_failure(directory, exit_code)
        return float(exit_code)


def claim_directory(directory: Path) -> Path:
    """Creates the directory and a file .claim in it; uses directory_2, directory_3, ... if another
    process has claimed it.
    """
    for candidate in numbered_paths(directory):
        candidate.mkdir(parents=True, exist_ok=True)
        try:
            (candidate / ".claim").touch(exist_ok=False)
            return candidate
        except FileExistsError:
            continue
    raise AssertionError("numbered_paths() is endless")
