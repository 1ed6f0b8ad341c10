"""Resumes a run from its directory."""

import sys
from pathlib import Path

from tasks import Config, Files, State
from tasks.checkpoints.checkpoints import newest
from tasks.logging import summary
from tasks.process import ranks
from tasks.process.exit_codes import Ended, NoRun
from tasks.process.job import Job
from tasks.run import prolonged
from tasks.run.start import COMPONENTS_ARGUMENT, train_in_processes
from tasks.run.train import report_end
from xformer_kit.checkpoint import checkpoint_files
from xformer_kit.config import check, config_hash
from xformer_kit.config.faults.machine import run_faults
from xformer_kit.config.options.logger_options import as_loggers
from xformer_kit.config.saved.config_file import check_unchanged
from xformer_kit.config.saved.run_directories import example_of_run
from xformer_kit.config.saved.saved_run import read_run
from xformer_kit.files.saved_files import check_stays_inside
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.text.command_lines import program, resume, value
from xformer_kit.text.printable import printable


def resume_run(run_dir: Path, components: Files = (), max_steps: int | None = None) -> int:
    """Resumes a run at its last checkpoint and returns its exit code; 0 if it is finished.

    max_steps: its new number of steps, see tasks/run/prolonged.py; None: that of its config, or of
    a change that was not completed.
    """
    try:
        if not (run_dir / "config.yaml").is_file():
            raise NoRun(_no_run(run_dir))
        _check_trained(run_dir)
        check_stays_inside(run_dir)  # before a file of somebody else is read
        saved = read_run(run_dir, components, COMPONENTS_ARGUMENT)
        results = summary.read(run_dir)
        if max_steps is None:
            max_steps = prolonged.unwritten_length(run_dir, saved)
        config = prolonged.with_length(saved, max_steps)
        if _is_finished(run_dir, saved, config, results):
            _check_config(run_dir, config, results)
            print(_finished(run_dir, config, results, components))
            return 0
        if faults := check(config) or [*run_faults(config)]:
            raise ConfigError(fault.under(run_dir) for fault in faults)
        if max_steps is not None and config is not saved:
            stopped = (
                None if results is None or summary.has_steps_left(results) else results["stopped"]
            )
            prolonged.check_length(run_dir, saved, max_steps, stopped)
        _note_server(config)
        return train_in_processes(config, Job(run_dir, components, max_steps=max_steps))
    except (Ended, ConfigError) as error:
        return report_end(error)


def _check_trained(run_dir: Path) -> None:
    """Raises ConfigError for an imported run, of which no step was trained."""
    files = checkpoint_files(run_dir / "checkpoints")
    if files.keys() & {"model", "published"} and "last" not in files:
        rule = "holds the weights of a published model and no step of a training to resume"
        fix = f"Start a new run from it: {program()} init_from={value(str(run_dir))}"
        raise config_error(run_dir, rule, fix=fix)


def _note_server(config: Config) -> None:
    """Prints the server that config.yaml names for the run's figures: the run may be somebody
    else's.
    """
    uri = as_loggers(config["logger"]).get("mlflow", {}).get("tracking_uri")
    if uri and ranks.rank() == 0:
        line = f"The run's config.yaml names the server that receives its figures: {uri}"
        print(printable(line), file=sys.stderr, flush=True)


def _finished(run_dir: Path, config: Config, results: State, components: Files) -> str:
    """Returns the line on a finished run, with the command that prolongs it if it has one."""
    stopped = results.get("stopped")
    line = f"The run in {run_dir} is finished: {results['steps']:,} steps"
    if stopped:
        return f"{line}, {stopped}. Nothing is left to do."
    if prolonged.is_of_study(config, run_dir, results.get("data_fingerprint") or ""):
        return f"{line}. Nothing is left to do."
    longer = f"{resume(run_dir, components)} trainer.max_steps={2 * results['steps']}"
    return f"{line}. To train it for longer: {longer}"


def _no_run(path: Path) -> str:
    """Returns the sentence for a path that is no run's directory."""
    run_dir = next((p for p in path.parents if (p / "config.yaml").is_file()), None)
    if path.is_file() and run_dir:
        return (
            f"resume: {path} is a checkpoint, and a run resumes at its last one. Try"
            f" resume={run_dir}, or init_from={path} for a new run from these weights."
        )
    fault = "is no run; it has no config.yaml" if path.is_dir() else "is not a directory"
    sentence = "Name a run's directory such as {}."
    fix = sentence.format(run_dir) if run_dir else example_of_run(path, sentence)
    return f"resume: {path} {fault}. {fix}"


def _is_finished(run_dir: Path, saved: Config, config: Config, results: State | None) -> bool:
    """Whether a run has taken all steps; saved: its config; config: with its new length; results:
    its summary.json. It may have been killed after it was prolonged and before its next step.
    """
    if results is None or summary.has_steps_left(results):
        return False
    limit = config["trainer"].get("max_steps")
    return limit == saved["trainer"].get("max_steps") and not (
        prolonged.changes(run_dir)
        and results["steps"] < (limit or 0)
        and not results.get("stopped")
    )


def _check_config(run_dir: Path, config: Config, results: State) -> None:
    """Raises ConfigError if a finished run's config.yaml is not the config in its checkpoint.

    The checkpoint, which may have gigabytes, is read only if the hash in summary.json differs from
    the config's. If no checkpoint can be read, nothing is checked.
    """
    if results.get("config_hash") == config_hash(config):
        return
    try:
        checkpoint = newest(run_dir / "checkpoints")
    except NoRun:
        return
    if checkpoint is not None:
        may_differ = prolonged.may_differ(run_dir, config)
        check_unchanged(run_dir, config, checkpoint[1].config, may_differ=may_differ)
