"""Composes and runs the jobs of a command line with Hydra: each job is a run in its own directory.
After a multirun, prints the table of its jobs.
"""

import os
import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from tasks import Config, Files
from tasks.logging.files import numbered_paths
from tasks.process import ranks
from tasks.process.exit_codes import NoRun
from tasks.process.processes import end_with_launcher
from tasks.run.early_checks import with_sources
from tasks.run.new_directory import LOCK, check_new_directory
from xformer_kit.config import conf_dir, from_hydra, to_plain_config
from xformer_kit.config.hydra.hydra_session import PRIMARY, VERSION_BASE
from xformer_kit.config.line.config_files import own_keys
from xformer_kit.config.line.overrides import parse_word
from xformer_kit.metrics import VAL_LOSS
from xformer_kit.registry import ConfigError
from xformer_kit.text.command_lines import program
from xformer_kit.text.user_path import user_path

_exit_codes: list[int] = []  # of the runs of this process
_sweep_dirs: list[Path] = []  # directories of the multiruns of this process
_existing_dirs: set[Path] = set()  # directories of runs that existed before Hydra created them


class CheckDirectory(Callback):
    """Creates and checks the directory of a run or of a multirun before Hydra writes into it."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        directory = Path(str(config.hydra.run.dir))
        if os.path.exists(directory):  # Path.exists raises OSError for a name that is too long
            _existing_dirs.add(directory.resolve())
        _check_directory(directory)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        directory = Path(str(config.hydra.sweep.dir))
        _check_directory(directory, "hydra.sweep.dir", f"*/{LOCK}")
        _sweep_dirs.append(directory.resolve())


def _check_directory(*arguments: Any) -> None:
    """Calls `check_new_directory` on rank 0, and ends this process after a fault: Hydra continues
    after other exceptions of its callbacks.
    """
    try:
        if ranks.rank() == 0:
            check_new_directory(*arguments)
    except (NoRun, ConfigError) as error:
        from tasks.run.train import report_end  # takes seconds

        raise SystemExit(report_end(error)) from None


def compose_and_run(line: Any) -> int:
    """Composes and runs the jobs of a checked CommandLine with Hydra; returns the exit code."""
    if (line.study is not None or line.multirun) and ranks.has_launcher():
        return _report_launched_ranks("study" if line.study is not None else "-m")
    sys.argv[1:] = line.argv
    if line.study is not None:
        return _run_study(line)
    sys.argv.append(f"++hydra.callbacks.directory._target_={__name__}.CheckDirectory")
    _run_hydra()
    if _sweep_dirs:
        from tasks.logging.sweep_table import write_sweep_table

        exit_code = write_sweep_table(_sweep_dirs[-1], line.components)
        return exit_code or max(_exit_codes, default=0)
    return max(_exit_codes, default=0)


def _run_hydra() -> None:
    """Composes and runs the jobs of sys.argv."""
    hydra.main(version_base=VERSION_BASE, config_path=conf_dir(), config_name=PRIMARY)(_run_job)()


def _report_launched_ranks(argument: str) -> int:
    """Reports that a study or a multirun cannot run in ranks of a launcher, since each rank would
    run all jobs; returns the exit code.
    """
    from tasks.run.train import report_end

    count = ranks.count()
    return report_end(
        NoRun(
            f"{argument}: starts the processes of its runs by itself; got {count} that torchrun or"
            f" SLURM started. Try {program()} with trainer.devices={count}."
        )
    )


def _run_study(line: Any) -> int:
    """Plans a study and runs it with Hydra's launcher; returns the exit code."""
    from tasks.study import sweep

    try:
        sweep.check_command_line(line)
    except ConfigError as error:
        print(*error.messages, sep="\n", file=sys.stderr)
        return 2
    line.trial_seconds = _trial_seconds
    line.compose = with_sources(line.compose)
    sys.argv[1:] = line.argv  # with the arguments that the study has added
    _run_hydra()
    return sweep.exit_codes[-1]


def _trial_seconds(config: Any, components: Files) -> tuple[float, float]:
    from tasks.run.trial_run import trial_seconds  # takes seconds

    return trial_seconds(config, components)


def _run_job(config: DictConfig) -> float | None:
    """Trains one run. In a multirun, returns its validation loss for sweepers that optimize it, NaN
    if the run failed.
    """
    hydra_config = HydraConfig.get()
    in_multirun = hydra_config.mode == RunMode.MULTIRUN
    if in_multirun:
        end_with_launcher()
    from tasks.logging import summary
    from tasks.run.start import start_run  # takes seconds

    # A ${ in these is not an interpolation: Hydra has resolved the directories.
    runtime: Any = OmegaConf.to_container(hydra_config.runtime)
    words: Any = OmegaConf.to_container(hydra_config.overrides)
    directory = Path(runtime["output_dir"])
    plain = to_plain_config(config)
    paths = plain.get("components") or ()
    # Relative to the user's directory: hydra.job.chdir may have changed that of this process.
    components = tuple(
        str(Path(runtime["cwd"], user_path(path)))
        for path in ([paths] if isinstance(paths, str) else paths)
    )
    run_config = from_hydra(plain, words["task"], _own_keys(words["task"], runtime))
    if (study := plain.get("study")) is not None:
        return _run_job_of_study(run_config, study.get("trial"), directory, components)
    is_named = any(
        argument.startswith(("hydra.run.dir=", "hydra.sweep.")) for argument in words["hydra"]
    )
    if not is_named and ranks.rank() == 0:
        directory = claim_directory(directory)
    launcher = runtime["choices"].get("hydra/launcher", "basic")
    exit_code = start_run(
        run_config,
        directory,
        components,
        in_multirun=in_multirun,
        quiet=in_multirun and launcher != "basic",
        directory_existed=directory.resolve() in _existing_dirs,
    )
    _exit_codes.append(exit_code)
    if not in_multirun:
        return None
    results = summary.read(directory) if exit_code == 0 else None
    return float((results or {}).get(VAL_LOSS, "nan"))


def _own_keys(words: list[str], runtime: Any) -> set[str]:
    """Returns the config paths that files of the user's own set; words: the job's overrides."""
    added = [s["path"] for s in runtime["config_sources"] if s["provider"] == "command-line"]
    overrides = [override for word in words for override in parse_word(word)]
    return own_keys(overrides, added[0] if added else None, runtime["cwd"])


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
