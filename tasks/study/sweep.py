"""The main loop of a study: open runs that no other process has locked are launched until none is
open.
"""

import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.process.exit_codes import FAILED, SIGNALS
from tasks.process.launched_jobs import check_launcher, lost_job
from tasks.study import state, stopping
from tasks.study.progress_table import ProgressTable
from tasks.study.resolve import StudyPlan, resolve
from tasks.study.wandb_group import publish, with_logger_options
from xformer_kit.config.faults.machine import why_not_created
from xformer_kit.files.saved_files import check_stays_inside
from xformer_kit.registry import ConfigError, Fault, config_error, suggestion
from xformer_kit.study import study_node
from xformer_kit.study.command import command
from xformer_kit.study.external import command_of
from xformer_kit.study.plan import StudyRun
from xformer_kit.text.command_lines import quoted, xformer

SIGNAL_CODES = [128 + number for number in SIGNALS]  # exit codes of a run that a signal stopped
# numbers in summary.json that are no metrics
NO_METRICS = ("steps", "stopped", "steps_left_out", "epoch_examples_dropped", "unigram_loss")
MAX_LAUNCHES = 3  # of one run by one process
POLL_SECONDS = 1.0  # between two checks of runs that other processes have locked
_command_lines: list[Any] = []  # the checked command line of this process
exit_codes: list[int] = []  # of the studies of this process


def check_command_line(line: Any) -> None:
    """Checks and stores a study's command line before Hydra starts. Raises ConfigError."""
    if faults := study_node.faults(line.study):
        raise ConfigError(faults)
    line.study = study_node.complete(line.study, line.study["name"])
    for option, directory in (
        ("name", "outputs/studies/" + line.study["name"]),
        ("runs", line.study["runs"]),
    ):
        if why_not_created(directory):
            rule = "must name a directory that can be made"
            raise config_error(f"study.{option}", rule, line.study[option])
    # Otherwise Hydra creates an unused directory.
    line.argv.append(f"hydra.sweep.dir={line.study['runs']}")
    _command_lines.append(line)


def run_study(launcher: Any, options: Mapping[str, Any], words: list[str]) -> None:
    """Runs the study of `check_command_line` with Hydra's launcher, and appends its exit code to
    `exit_codes`. options: hydra.launcher. words: overrides of the command line.
    """
    try:
        check_launcher(options)
        exit_codes.append(_run(launcher, words))
    except ConfigError as error:
        print(*error.messages, sep="\n", file=sys.stderr)
        exit_codes.append(2)


def _run(launcher: Any, words: list[str]) -> int:
    """Runs the study and returns its exit code. Raises ConfigError if it cannot be planned."""
    line = _command_lines[-1]
    plan = resolve(line.study, line.compose, line.argv, tuple(line.components), line.timing)
    for directory in (plan.folder, Path(plan.node["runs"])):
        check_stays_inside(directory)
    if plan.node["dry_run"] and plan.node["command"] is not None:
        for run in plan.runs:
            print(command_of(run.config, plan.directory(run)))
        return 0
    if plan.node["dry_run"]:
        from tasks.study.dry_run import measure_outside, show

        show(plan, measure_outside(plan, line.timing.trial_seconds))
        return 0
    note = plan.replacement_note()
    search = None
    if plan.adaptive:
        from tasks.study.search import SearchRunner

        search = SearchRunner(plan)
        search.write()
    if note:
        print(note, file=sys.stderr)
    plan.write()
    if plan.node["retry"] and search is None:
        delete_failed_runs(plan)
    parallel = type(launcher).__name__ != "BasicLauncher"
    # SIGINT ends the study with the command that continues it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with ProgressTable(plan) as table:
        try:
            if plan.node["forecast"]:
                stopped = launch_foretold(plan, launcher, words, parallel, table)
            elif search is None:
                stopped = launch(plan, launcher, words, parallel, table)
            else:
                stopped = launch_search(search, launcher, words, parallel, table)
        except KeyboardInterrupt:
            stopped = 130
    return finish(plan, stopped)


def launch_search(
    search: Any, launcher: Any, words: list[str], parallel: bool, table: ProgressTable
) -> int:
    """Launches the trials of a search; returns as `launch` does."""
    from tasks.study.search import parallel_trials, run_search

    def train(runs: list[StudyRun]) -> int:
        return launch(replace(search.plan, runs=runs), launcher, words, parallel, table)

    at_once = parallel_trials(launcher, search.node["design"])
    return run_search(search, at_once, train, table.update)


def launch_foretold(
    plan: StudyPlan, launcher: Any, words: list[str], parallel: bool, table: ProgressTable
) -> int:
    """Launches all runs but those of the largest size, writes their forecast, and launches them;
    returns as `launch` does.
    """
    from tasks.study import forecast

    fitted, larger = forecast.split(plan)
    if stopped := launch(fitted, launcher, words, parallel, table):
        return stopped
    forecast.write(plan, larger)
    return launch(plan, launcher, words, parallel, table)


def launch(
    plan: StudyPlan, launcher: Any, words: list[str], parallel: bool, table: ProgressTable
) -> int:
    """Launches open runs until there are none; returns the exit code of a signal that stopped a
    run, or 0. parallel: whether all free runs are launched at once.
    """
    number, launches = 0, Counter[str]()
    while True:
        table.update()
        if fault := missing_metric(plan, table):
            raise ConfigError(fault)
        stops, states = table.stops(), table.states
        open_runs = [
            run for run in plan.runs if not (states[run.key].over or run.key in stops.left_out)
        ]
        if not open_runs:
            return 0
        free = [
            run
            for run in open_runs
            if states[run.key].status != "running" and run.key not in stops.waiting
        ]
        if not free:
            time.sleep(POLL_SECONDS)
            continue
        batch = free if parallel else free[:1]
        launches.update(run.key for run in batch)
        line = _command_lines[-1]
        line.checked.clear()
        for run in batch:
            # Another process may have proposed a trial, so its config is composed from its words.
            config = run.config if plan.search is None else plan.compose(run.words)[0]
            line.checked[run.key] = with_logger_options(plan.node, run, config), run.report_to
        jobs = [[*words, directory_override(run.key)] for run in batch]
        try:
            for done in launcher.launch(jobs, initial_job_idx=number):
                if done.return_value in SIGNAL_CODES:
                    return int(done.return_value)
        except Exception as error:
            if not parallel:
                raise
            launches = check_lost_job(plan, batch, launches, error)
        number += len(batch)
        for run in batch:  # a run that does not end after MAX_LAUNCHES has failed
            if (
                launches[run.key] >= MAX_LAUNCHES
                and not state.claimed(directory := plan.directory(run))
                and not plan.state(run).over
            ):
                state.record_failure(directory, FAILED)


def check_lost_job(
    plan: StudyPlan, batch: list[StudyRun], launches: Counter[str], error: Exception
) -> Counter[str]:
    """Prints a launcher's exception; returns the launches without those of runs that have not
    begun: their jobs may still wait in a queue. Raises ConfigError if no run has begun.
    """
    begun = [run.key for run in batch if plan.directory(run).exists()]
    if not begun:
        raise ConfigError([lost_job(error)]) from None
    print(lost_job(error), file=sys.stderr)
    return launches - Counter(run.key for run in batch if run.key not in begun)


def directory_override(key: str) -> str:
    """Returns the override of a run's directory; quoted, because Hydra parses a key such as 54e53
    as a number.
    """
    return f"hydra.sweep.subdir={quoted(key)}"


def missing_metric(plan: StudyPlan, table: ProgressTable) -> Fault | None:
    """Returns the fault of a metric of the study that a finished run lacks; None if there is
    none.
    """
    options = {plan.node["metric"]: "metric"} | dict.fromkeys(plan.node["also"] or (), "also")
    for facts in (found.facts for found in table.states.values() if found.facts):
        for name, option in options.items():
            if name not in facts:
                numbers = [k for k, v in facts.items() if isinstance(v, (int, float))]
                metrics = [k for k in numbers if k not in NO_METRICS]
                rule = f"no metric of the runs is called '{name}'"
                fix = f"{suggestion(name, metrics, 'They have')} Finished runs are kept."
                return Fault(f"study.{option}", rule, fix=fix)
    return None


def delete_failed_runs(plan: StudyPlan) -> None:
    """Deletes the directories of runs that failed or diverged, so that they are repeated."""
    import shutil

    for run in plan.runs:
        if state.of(directory := plan.directory(run)).status in ("failed", "diverged"):
            shutil.rmtree(directory)


def finish(plan: StudyPlan, stopped: int) -> int:
    """Writes and publishes the report, and prints how to go on after a failure. Returns the exit
    code: `stopped` if it is not 0, else 2 if no report can be written, else 1 if a run failed, else
    0. Runs that the stopping rule left out do not count.
    """
    from tasks.study.report import write_report

    states = {run.key: plan.state(run) for run in plan.runs}
    left_out = stopping.decide(plan.plain(), states).left_out
    statuses = [found.status for key, found in states.items() if key not in left_out]
    try:
        study_results, content = write_report(plan.folder)
    except ConfigError as error:  # such as a metric that no run has
        print(*error.messages, sep="\n", file=sys.stderr)
        return stopped or 2
    if stopped:
        print(f"Stopped. Go on with: {command(plan.command)}", file=sys.stderr)
        return stopped
    if content is not None:
        publish(plan.node, plan.variants[0].config["logger"], study_results, content)
    if count := statuses.count("failed"):
        reasons = xformer("status", plan.node["name"])
        retry = command(plan.command, "study.retry=true")
        print(f"{count} run{'s' * (count > 1)} failed. Reasons: {reasons}", file=sys.stderr)
        print(f"Repeat failed and diverged runs: {retry}", file=sys.stderr)
    return int(count > 0)
