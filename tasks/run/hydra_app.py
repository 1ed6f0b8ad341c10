"""Runs the jobs of Hydra: each becomes a run in its directory; after a multirun, the table of its
jobs.
"""

import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from tasks import Files
from tasks.logging.files import numbered
from tasks.run import ranks
from tasks.run.exit_codes import NoRun
from tasks.run.processes import end_with_launcher
from xformer_kit.config import conf_dir, from_hydra
from xformer_kit.config.hydra_session import PRIMARY, VERSION_BASE
from xformer_kit.registry import ConfigError

_codes: list[int] = []  # of the runs of this process
_sweeps: list[Path] = []  # directories of the multiruns of this process
_existing: set[Path] = set()  # directories of runs that existed before Hydra made them


class RecordSweepDirectory(Callback):
    """Remembers the directory of a multirun, which Hydra passes to its callbacks."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        _sweeps.append(Path(str(config.hydra.sweep.dir)).resolve())


def compose_and_run(line: Any) -> int:
    """Compose and run the jobs of a checked command line with Hydra; returns the exit code."""
    if (line.study is not None or line.multirun) and ranks.has_launcher():
        return _refuse_ranks("study" if line.study is not None else "-m")
    sys.argv[1:] = line.argv
    if line.study is not None:
        return _study(line)
    if line.multirun:
        sys.argv.append(f"++hydra.callbacks.table._target_={__name__}.RecordSweepDirectory")
    named = (
        Path(word.partition("=")[2]) for word in line.argv if word.startswith("hydra.run.dir=")
    )
    _existing.update(path.resolve() for path in named if path.exists())
    _run_hydra()
    if _sweeps:
        from tasks.logging.sweep_table import finish

        return finish(_sweeps[-1], line.components)
    return max(_codes, default=0)


def _run_hydra() -> None:
    """Hydra composes and runs the jobs of sys.argv."""
    hydra.main(version_base=VERSION_BASE, config_path=conf_dir(), config_name=PRIMARY)(job)()


def _refuse_ranks(what: str) -> int:
    """Reports an error if a launcher started several ranks: each rank would run all jobs."""
    from tasks.run.train import report_end

    count = ranks.count()
    return report_end(
        NoRun(
            f"{what}: starts the processes of its runs by itself; got {count} that torchrun or"
            f" SLURM started. Try python train.py with trainer.devices={count}."
        )
    )


def _study(line: Any) -> int:
    """Plan a study, and run it with Hydra's launcher."""
    from tasks.study import sweep

    try:
        sweep.check_command_line(line)
    except ConfigError as error:
        print(*error.messages, sep="\n", file=sys.stderr)
        return 2
    sys.argv[1:] = line.argv  # with what the study adds to it
    _run_hydra()
    return sweep.exit_codes[-1]


def job(config: DictConfig) -> float | None:
    """One run. In a multirun its validation loss, for sweepers that optimise it; NaN where it
    failed.
    """
    about = HydraConfig.get()
    several = about.mode == RunMode.MULTIRUN
    if several:
        end_with_launcher()
    from tasks.logging import summary
    from tasks.run.start import start_run  # which takes seconds

    directory = Path(about.runtime.output_dir)
    named = any(
        word.startswith(("hydra.run.dir=", "hydra.sweep.")) for word in about.overrides.hydra
    )
    if not named and ranks.rank() == 0 and config.get("study") is None:
        directory = claim_directory(directory)
    paths = config.get("components") or ()
    # Relative to where the user was: hydra.job.chdir may have moved this process.
    components = tuple(
        str(Path(about.runtime.cwd, Path(f).expanduser()))
        for f in ([paths] if isinstance(paths, str) else paths)
    )
    if config.get("study") is not None:
        return _run_of_study(config, about, directory, components)
    parallel = several and about.runtime.choices.get("hydra/launcher", "basic") != "basic"
    existed = directory.resolve() in _existing
    code = start_run(
        from_hydra(config, about.overrides.task),
        directory,
        components,
        listed=several,
        quiet=parallel,
        existed=existed,
    )
    _codes.append(code)
    if not several:
        return None
    return (
        float((summary.read(directory) or {}).get("val/loss", "nan")) if code == 0 else float("nan")
    )


def _run_of_study(config: DictConfig, about: Any, directory: Path, components: Files) -> float:
    """Train one run of a study; returns its exit code, or 0 if another process trains it."""
    from tasks.run.job import Job
    from tasks.run.start import ensure_run
    from tasks.study.state import claim, record_failure

    trial: Any = OmegaConf.to_container(config.study)
    job = Job(
        directory,
        components,
        listed=True,
        quiet=True,
        silent=True,
        key=directory.name,
        trial=trial.get("trial"),
    )
    with claim(directory) as claimed:
        if not claimed:
            return 0.0
        code = ensure_run(from_hydra(config, about.overrides.task), job)
        record_failure(directory, code)
        return float(code)


def claim_directory(directory: Path) -> Path:
    """Create and claim the directory, or `_2`, `_3`, ... if another process has claimed it."""
    for mine in numbered(directory):
        mine.mkdir(parents=True, exist_ok=True)
        try:
            (mine / ".claim").touch(exist_ok=False)
            return mine
        except FileExistsError:
            continue
    raise AssertionError("there is always another number")


def resume(run_dir: Path, components: Files) -> int:
    from tasks.run.resume import resume_run

    return resume_run(run_dir, components)
