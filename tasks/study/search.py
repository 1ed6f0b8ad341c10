"""Runs a search: points are proposed, checked, run like other runs of a study, and reported to the
sampler.

The state of a trial is the state of its run's directory, `study.runs`/KEY. The storage keeps
proposals and values for the sampler; a search that is continued on another machine needs only the
storage.
"""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from tasks.logging import summary
from tasks.study import state
from tasks.study.collect import state_and_curves
from tasks.study.proposals import Proposals
from tasks.study.resolve import StudyPlan
from tasks.study.storage import address, errors, importance, load_or_create, unreachable
from xformer_kit.config import config_hash
from xformer_kit.config.line.to_overrides import to_overrides
from xformer_kit.registry import ConfigError
from xformer_kit.study import space
from xformer_kit.study.factor import Levels
from xformer_kit.study.metric import metric_of
from xformer_kit.study.plan import StudyRun, Variant, name_of, words_of
from xformer_kit.study.settings import seeds
from xformer_kit.study.study_node import excluded, label, levels_of

POLL_SECONDS = 1.0  # between two checks of trials that other processes run
# Lock file in a run's directory: locked by the process that proposed the trial until its value is
# reported.
PROPOSAL_LOCK = ".asked"


@dataclass(frozen=True)
class Trial(StudyRun):
    """A run whose training process reports to the storage."""


class SearchRunner:
    """Runs the trials of a search. Raises ConfigError if the storage cannot be used, or has another
    search of this name.
    """

    def __init__(self, plan: StudyPlan):
        self.plan = plan
        self.node = plan.node
        self.base = plan.variants[0]
        self.factors, _ = levels_of(self.node)
        # the seed of the search, and the seeds of the confirmation runs
        self.seed, *self.confirmation_seeds = seeds(self.node, self.base.config["seed"])
        identity = {
            "space": space.describe_space(self.factors, self.node["exclude"]),
            "config": config_hash({**self.base.config, "seed": 0}),
            "data": plan.costs.of(self.base.config)[0].fingerprint,
            "metric": self.node["metric"],
            "seed": self.seed,
        }
        shared = self.node["storage"] is not None
        if not shared:
            plan.folder.mkdir(parents=True, exist_ok=True)
        self.study = load_or_create(self.node, identity)
        self.pool = _pool_id(Path(self.node["runs"]))
        self.proposals = Proposals(
            self.study, self.factors, self.base.levels, self.pool, shared, self._variant_of
        )
        self.runs: dict[int, Trial] = {}  # by Optuna's trial number
        self.confirmed: list[Variant] = []
        # label -> overrides, of the baseline and the best points
        self.commands: dict[str, list[str]] = {}
        plan.runs.clear()

    def trials(self) -> list[Any]:
        """Returns Optuna's trials that are runs, in order; only the last one of a repeated run."""
        by_key = {trial.user_attrs["run"]["key"]: trial for trial in self.proposals.runs()}
        return sorted(by_key.values(), key=attrgetter("number"))

    def own_trials(self) -> list[Any]:
        """Returns the trials whose runs are in this pool."""
        return [trial for trial in self.trials() if trial.user_attrs["pool"] == self.pool]

    def unreported(self) -> list[tuple[Any, Trial]]:
        """Returns the trials of this pool that are not reported to the sampler, with their runs."""
        return [(trial, self._run(trial)) for trial in _open(self.own_trials())]

    def running_elsewhere(self) -> int:
        """Returns the number of open trials in other pools, on machines that share no directory."""
        return len(_open(self.trials())) - len(_open(self.own_trials()))

    def _run(self, trial: Any) -> Trial:
        """Returns the run of an Optuna trial."""
        if trial.number not in self.runs:
            run, variant = trial.user_attrs["run"], self.base
            if run["variant"]["label"] != variant.label:
                fields: dict[str, Any] = {
                    k: tuple(v) if isinstance(v, list) else v for k, v in run["variant"].items()
                }
                # The overrides compose its config; only the logger is read from this one.
                variant = Variant(**fields, config=variant.config)
            report_to = None
            if self.node["design"]["pruner"] != "none":
                report_to = {key: self.node[key] for key in ("name", "metric", "design")}
                report_to |= {
                    "storage": address(self.node),
                    "id": trial._trial_id,
                    "number": run["number"],
                }
            self.runs[trial.number] = Trial(variant, self.seed, run["key"], report_to)
        return self.runs[trial.number]

    def tell(self) -> None:
        """Reports trials that have ended to the sampler, and writes the plan."""
        for trial, run in self.unreported():
            current = state.of(self.plan.directory(run), pruned=True)
            if current.over:
                self._tell(trial, run, current)
        self.write()

    def _tell(self, trial: Any, run: StudyRun, current: state.State) -> None:
        """Reports a trial that has ended, with its curve."""
        from optuna.trial import TrialState

        name, trial_id = self.node["metric"], trial._trial_id
        value = current.facts.get(name)
        if current.status == "finished" and not isinstance(value, (int, float)):
            return  # the metric does not exist; `sweep.launch` reports that
        storage = self.study._storage
        _, curves = state_and_curves(current, self.plan.directory(run))
        with suppress(RuntimeError):  # another process has reported it in the meantime
            for step, measured in zip(*curves.get(name, ((), ())), strict=True):
                # Runs of other studies have not reported their values.
                if step not in trial.intermediate_values:
                    storage.set_trial_intermediate_value(trial_id, step, measured)
            storage.set_trial_user_attr(
                trial_id,
                "ended",
                {"status": current.status, "step": current.step, "why": current.why},
            )
            if current.status == "diverged":
                storage.set_trial_user_attr(trial_id, "infeasible", 1.0)
        ends = {"finished": TrialState.COMPLETE, "failed": TrialState.FAIL}
        end = ends.get(current.status, TrialState.PRUNED)
        values = float(value) if end is TrialState.COMPLETE else None  # type: ignore[arg-type]
        with suppress(RuntimeError):
            self.study.tell(trial.number, values, state=end, skip_if_finished=True)

    def write(self) -> None:
        """Writes the plan with the trials of this pool and the confirmation runs."""
        own_runs = [self._run(trial) for trial in self.own_trials()]
        self.plan.variants[1:] = [run.variant for run in own_runs if run.variant is not self.base]
        others = [run for run in self.plan.runs if not isinstance(run, Trial)]
        self.plan.runs[:] = own_runs + others
        self.plan.search = self.facts()
        self.plan.write()

    def facts(self) -> dict:
        """Returns the state of the search for the report, as plain data."""
        ended = [t.user_attrs for t in self.proposals.all() if t.state.is_finished()]
        return {
            "trials": self.node["design"]["trials"],
            "seed": self.seed,
            "end": self.proposals.end,
            "refused": sum("refused" in attributes for attributes in ended),
            "again": sum("again" in attributes for attributes in ended),
            "confirmed": [variant.label for variant in self.confirmed],
            "commands": self.commands,
            "importance": importance(self.study),
            "versions": {"optuna": version("optuna")},
            "points": [_point(t) for t in self.trials()],
        }

    def take(self, locks: ExitStack, count: int) -> list[Trial]:
        """Returns at most `count` trials to run now: first those of dead processes, then new ones.
        They are locked until `locks` closes or the process ends.
        """
        with _exclusive(self.plan.folder):
            abandoned = (run for _, run in self.unreported())
            locked = (run for run in chain(abandoned, self._new()) if self._lock(run, locks))
            runs = list(islice(locked, count))
        self.write()
        return runs

    def _new(self) -> Iterator[Trial]:
        """Yields new trials, until there are as many as the design has."""
        while self._needs_trials() and (found := self.proposals.next()) is not None:
            yield self._as_run(*found)

    def _needs_trials(self) -> bool:
        """Whether trials are enqueued, or there are fewer than the design has."""
        enqueued = any(t.state.name == "WAITING" for t in self.proposals.all())
        return enqueued or len(self.trials()) < self.node["design"]["trials"]

    def _lock(self, run: StudyRun, locks: ExitStack) -> bool:
        """Locks a run that is not running; False if another process has it."""
        directory = self.plan.directory(run)
        return not state.claimed(directory) and locks.enter_context(
            state.claim(directory, PROPOSAL_LOCK)
        )

    def _variant_of(self, levels: Levels) -> tuple[Variant, str] | str:
        """Returns the variant of a point, composed, checked and with matched budget, and its run
        key; or why the point is refused.
        """
        if any(pattern.items() <= levels.items() for pattern in excluded(self.node)):
            return "study.exclude leaves it out"
        words = words_of(self.factors, levels)
        config, faults = self.plan.compose(words)
        if faults:
            return str(faults[0])
        name = label(self.factors, levels)
        variant = Variant(name, name_of(self.node, name), levels, tuple(words), config)
        try:
            variant = self.plan.size(variant)
        except ConfigError as error:
            return error.messages[0]
        return variant, self.plan.costs.key({**variant.config, "seed": self.seed})

    def _as_run(self, trial: Any, variant: Variant, key: str) -> Trial:
        """Stores the run of a trial and returns it. A run that another search pruned is resumed."""
        trial.set_user_attr(
            "run", {"number": len(self.trials()), "key": key, "variant": variant.plain()}
        )
        run = self._run(next(t for t in self.proposals.runs() if t.number == trial.number))
        directory = self.plan.directory(run)
        if state.of(directory, pruned=True).status == "pruned":
            (directory / summary.ENDED).unlink(missing_ok=True)
        return run

    def retry_failed(self) -> None:
        """Deletes and enqueues trials that failed or diverged."""
        with _exclusive(self.plan.folder):
            for trial in self.own_trials():
                if _end_of(trial)["status"] in ("failed", "diverged"):
                    shutil.rmtree(self.plan.directory(self._run(trial)), ignore_errors=True)
                    self.study.enqueue_trial(trial.params, user_attrs={"retry": True})

    def confirmation_runs(self) -> list[StudyRun]:
        """Returns runs of the baseline and the best points at the seeds that the search did not
        use.
        """
        done = [trial for trial in self.trials() if _end_of(trial)["status"] == "finished"]
        sign, confirm = metric_of(self.node).sign, self.node["design"]["confirm"]
        done.sort(key=lambda trial: (sign * trial.value, trial.number))
        ranked = [self._run(trial).variant for trial in done]
        best = [variant for variant in ranked if variant is not self.base][: confirm or 1]
        other_seeds = self.confirmation_seeds if confirm else []
        self.confirmed = best if other_seeds else []
        configs = [(v, self.plan.compose(list(v.overrides))[0]) for v in (self.base, *best)]
        self.commands |= {variant.label: to_overrides(config) for variant, config in configs}
        runs = [  # sorted by seed, so that an interrupted study has all variants at the same seeds
            StudyRun(variant, seed, self.plan.costs.key({**config, "seed": seed}))
            for seed in sorted(other_seeds if best else [])
            for variant, config in configs
        ]
        self.plan.runs[:] = [run for run in self.plan.runs if isinstance(run, Trial)] + runs
        self.write()
        return runs


def _open(trials: list[Any]) -> list[Any]:
    """Returns the trials whose end is not reported to the storage."""
    return [trial for trial in trials if not trial.state.is_finished()]


def _end_of(trial: Any) -> dict:
    """Returns {status, step, why} of the end of a trial; its status is `running` before."""
    return trial.user_attrs.get("ended", {"status": "running", "step": None, "why": ""})


def _point(trial: Any) -> dict:
    """Returns a trial as plain data, for the report."""
    run, ended = trial.user_attrs["run"], _end_of(trial)
    value = trial.value if ended["status"] == "finished" else None
    label = run["variant"]["label"]
    return {"number": run["number"], "key": run["key"], "label": label, "value": value} | ended


# Trains runs until they have ended; returns the exit code of a signal that stopped it, or 0.
Launch = Callable[[list[StudyRun]], int]


def run_search(
    search: SearchRunner, at_once: int, launch: Launch, update: Callable[[], None]
) -> int:
    """Runs all trials, then the confirmation runs; returns the exit code of `launch`. `update` is
    called before each proposal.
    """
    guarded = partial(_guarded, search)
    if search.node["retry"]:
        guarded(search.retry_failed)
    while True:
        guarded(search.tell)
        update()
        with ExitStack() as locks:
            if runs := guarded(search.take, locks, at_once):
                stopped = launch(runs)
                guarded(search.tell)
                if stopped:
                    return stopped
                continue
        if not guarded(search.unreported):
            break
        time.sleep(POLL_SECONDS)
    if search.running_elsewhere():
        return 0  # the last machine confirms
    return launch(runs) if (runs := guarded(search.confirmation_runs)) else 0


def _guarded(search: SearchRunner, call: Callable[..., Any], *args: Any) -> Any:
    """Calls a function; raises ConfigError if the storage fails. Trained runs are kept."""
    try:
        return call(*args)
    except errors() as error:
        raise unreachable(address(search.node), error) from None


def parallel_trials(launcher: Any, design: dict) -> int:
    """Returns the number of trials that are proposed at once: study.design.together, or the
    launcher's number of parallel jobs.
    """
    jobs = (getattr(launcher, "joblib", None) or {}).get("n_jobs", 1)
    if design["together"] is None and jobs not in (None, 1):
        from joblib import effective_n_jobs

        return max(1, effective_n_jobs(jobs))
    return design["together"] or 1


def _pool_id(pool: Path) -> str:
    """Returns the id of a directory of runs, equal on all machines that share it."""
    pool.mkdir(parents=True, exist_ok=True)
    path, temporary = pool / ".pool", pool / f".pool.{uuid.uuid4().hex}"
    if not path.exists():
        temporary.write_text(uuid.uuid4().hex)
        with suppress(FileExistsError):  # another process was faster
            os.link(temporary, path)
        temporary.unlink()
    return path.read_text()


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Excludes other processes of this study, in its `folder`, that propose or delete trials; waits
    until they have ended. Without effect where files cannot be locked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".proposing", "a") as file:
        state.lock(file, wait=True)
        yield
