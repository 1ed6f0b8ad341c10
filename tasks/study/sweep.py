"""The loop of a study: runs that are open and not locked are launched until none is open."""

import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from tasks.run.exit_codes import FAILED, SIGNALS
from tasks.study import state, stopping
from tasks.study.group import publish
from tasks.study.group import words as words_of
from tasks.study.resolve import StudyPlan, resolve
from tasks.study.table import ProgressTable
from xformer_kit.registry import ConfigError, Fault, nearest
from xformer_kit.registry.command_lines import quoted, xformer
from xformer_kit.study import question
from xformer_kit.study.command import command
from xformer_kit.study.design import DESIGNS
from xformer_kit.study.plan import StudyRun

STOPPED = [
    128 + number for number in SIGNALS
]  # exit codes of a run that somebody stopped, and the study with it
NOT_MEASURED = (
    "steps",
    "stopped",
    "steps_left_out",
    "epoch_examples_dropped",
)  # facts that no study compares
MOST = 3  # launches of one run by one process
PATIENCE = 1.0  # seconds between two looks at runs that other processes hold
_asked: list[Any] = []  # the checked command line of this process
codes: list[int] = []  # how the studies of this process ended


def ask(line: Any) -> None:
    """Check a study's command line before Hydra starts. Raises ConfigError."""
    if faults := question.faults(line.study):
        raise ConfigError(faults)
    line.study = question.complete(line.study, line.study["name"])
    line.argv.append(
        f"hydra.sweep.dir={line.study['runs']}"
    )  # or Hydra makes a directory that nobody uses
    _asked.append(line)


def go(launcher: Any, words: list[str]) -> None:
    """Run the study that `ask` was given, on Hydra's launcher; `codes` gets its exit code."""
    try:
        codes.append(_run(launcher, words))
    except ConfigError as error:
        print(*error.messages, sep="\n", file=sys.stderr)
        codes.append(2)


def _run(launcher: Any, words: list[str]) -> int:
    line = _asked[-1]
    plan = resolve(line.study, line.compose, line.argv, tuple(line.components))
    if plan.node["dry_run"]:
        from tasks.study.dry_run import show

        show(plan)
        return 0
    search = search_of(plan)
    plan.write()
    if plan.node["retry"] and search is None:
        again(plan)
    together = type(launcher).__name__ != "BasicLauncher"
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ends with how to go on
    with ProgressTable(plan) as table:
        try:
            if search is None:
                stopped = launch(plan, launcher, words, together, table)
            else:
                stopped = seek(search, launcher, words, together, table)
        except KeyboardInterrupt:
            stopped = 130
    return ending(plan, stopped)


def search_of(plan: StudyPlan) -> Any:
    """The search, where the study's design proposes its variants one after another; else None."""
    if not DESIGNS[plan.node["design"]["name"]].adaptive:
        return None
    from tasks.study.search import SearchRunner

    search = SearchRunner(plan)
    search.write()
    return search


def seek(search: Any, launcher: Any, words: list[str], together: bool, table: ProgressTable) -> int:
    """Launch what a search proposes; returns as `launch` does."""
    from tasks.study.search import explore, side_by_side

    def train(runs: list[StudyRun]) -> int:
        return launch(replace(search.plan, runs=runs), launcher, words, together, table)

    return explore(search, side_by_side(launcher, search.node["design"]), train, table.look)


def launch(
    plan: StudyPlan, launcher: Any, words: list[str], together: bool, table: ProgressTable
) -> int:
    """Launch what is open until nothing is; returns the code of the signal that ended it, or 0."""
    number, tried = 0, Counter[str]()
    while True:
        table.look()
        if fault := unmeasured(plan, table):
            raise ConfigError(fault)
        stops = table.stops()
        open_runs = [
            run
            for run in plan.runs
            if not table.states[run.key].over and run.key not in stops.left_out
        ]
        held = {
            run.key for run in open_runs if table.states[run.key].status == "running"
        } | stops.waiting
        free = [run for run in open_runs if run.key not in held]
        if not open_runs:
            return 0
        if not free:
            time.sleep(PATIENCE)
            continue
        batch = free if together else free[:1]
        tried.update(run.key for run in batch)
        given = [word for word in words if not word.lstrip("+").startswith("seed=")]
        jobs = [
            _asked[-1].job([*given, *run.words])
            + [*words_of(plan.node, run), directory_word(run.key)]
            for run in batch
        ]
        for done in launcher.launch(jobs, initial_job_idx=number):
            if done.return_value in STOPPED:
                return int(done.return_value)
        number += len(batch)
        for run in batch:  # a run that comes back again and again as it went is no run that goes on
            if (
                tried[run.key] >= MOST
                and not state.claimed(where := plan.directory(run))
                and not plan.state(run).over
            ):
                state.left(where, FAILED)


def directory_word(key: str) -> str:
    """The override that names a run's directory; quoted, as Hydra reads a key such as 54e53 as a
    number.
    """
    return f"hydra.sweep.subdir={quoted(key)}"


def unmeasured(plan: StudyPlan, table: ProgressTable) -> Fault | None:
    """The sentence for a metric that finished runs do not have; what they have is only known from
    one.
    """
    asked = {plan.node["metric"]: "metric"} | dict.fromkeys(plan.node["also"] or (), "also")
    for seen in table.states.values():
        for name, key in asked.items() if seen.facts else ():
            if name not in seen.facts:
                known = [
                    k
                    for k, v in seen.facts.items()
                    if isinstance(v, (int, float)) and k not in NOT_MEASURED
                ]
                way = f"Runs that are finished stay so; study.{key} can name {', '.join(known)}."
                return Fault(
                    f"study.{key}",
                    f"no metric of the runs is called '{name}'",
                    fix=f"{nearest(name, known)}{way}",
                )
    return None


def again(plan: StudyPlan) -> None:
    """Take back the endings of runs that failed or diverged, so that they are run once more."""
    import shutil

    for run in plan.runs:
        if state.of(directory := plan.directory(run)).status in ("failed", "diverged"):
            shutil.rmtree(directory)


def ending(plan: StudyPlan, stopped: int) -> int:
    """The report, and the exit code: 0 where every run finished or diverged, 1 where one failed."""
    from tasks.study.report import written

    states = {run.key: plan.state(run) for run in plan.runs}
    left_out = stopping.decide(plan.plain(), states).left_out
    ends = [now.status for key, now in states.items() if key not in left_out]
    try:
        found, content = written(plan.folder)
    except ConfigError as error:  # what only the runs can tell, such as which metrics they have
        print(*error.messages, sep="\n", file=sys.stderr)
        return stopped or 2
    if stopped:
        print(f"Stopped. Go on with: {command(plan.command)}", file=sys.stderr)
        return stopped
    if content is not None:
        publish(plan.node, plan.variants[0].config["logger"], found, content)
    if count := ends.count("failed"):
        again_ = command(plan.command, "study.retry=true")
        print(
            f"{count} run{'s' * (count > 1)} failed. Why: {xformer('status', plan.node['name'])}",
            file=sys.stderr,
        )
        print(f"Run again what failed or diverged: {again_}", file=sys.stderr)
    return int("failed" in ends)
