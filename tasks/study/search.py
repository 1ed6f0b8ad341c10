"""A search at work: points are proposed one after another, checked, run as any run of a study, and
told to the sampler.

A trial's truth is its run's directory, `study.runs`/KEY: who holds it is at work, and what it says
has become of the trial. The storage remembers proposals and figures for the sampler; a search that
goes on elsewhere needs nothing else.
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
from tasks.run.to_overrides import to_overrides
from tasks.study import state
from tasks.study.collect import counted
from tasks.study.proposals import Proposals
from tasks.study.resolve import StudyPlan
from tasks.study.storage import address, errors, importance, study_of, unreachable
from xformer_kit.config import config_hash
from xformer_kit.registry import ConfigError
from xformer_kit.study import space
from xformer_kit.study.factor import Levels, text
from xformer_kit.study.metric import metric_of
from xformer_kit.study.plan import StudyRun, Variant, name_of, words_of
from xformer_kit.study.question import excluded, label, levels_of
from xformer_kit.study.settings import seeds

PATIENCE = 1.0  # seconds between two looks at trials that other processes hold
ASKED = ".asked"  # in a run's directory: locked by who proposed the trial, until its figure is told


@dataclass(frozen=True)
class Trial(StudyRun):
    """A run that its training process reports to the storage."""

    report_to: str = ""  # the override that names the storage

    @property
    def words(self) -> list[str]:
        return [*super().words, self.report_to]


class SearchRunner:
    """The trials of a search. Raises ConfigError where the storage cannot be used, or holds another
    search.
    """

    def __init__(self, plan: StudyPlan):
        self.plan = plan
        self.node = plan.node
        self.base = plan.variants[0]
        self.factors, _ = levels_of(self.node)
        self.first, *self.others = seeds(self.node, self.base.config["seed"])
        asked = {
            "space": space.described(self.factors, self.node["exclude"]),
            "config": config_hash({**self.base.config, "seed": 0}),
            "data": plan.costs.of(self.base.config)[0].fingerprint,
            "metric": self.node["metric"],
            "seed": self.first,
        }
        shared = self.node["storage"] is not None
        if not shared:
            plan.folder.mkdir(parents=True, exist_ok=True)
        self.study = study_of(self.node, asked)
        self.pool = _name(Path(self.node["runs"]))
        self.proposals = Proposals(
            self.study, self.factors, self.base.levels, self.pool, shared, self._judged
        )
        self.runs: dict[int, Trial] = {}  # by Optuna's number
        self.confirmed: list[Variant] = []
        # label -> overrides of the best points and the baseline
        self.commands: dict[str, list[str]] = {}
        # finished trials, and importance by them
        self.counted: tuple[int, dict[str, float]] = (0, {})
        plan.runs.clear()

    def trials(self) -> list[Any]:
        """Optuna's trials that are runs, in their order; of a point that was run again, the
        last.
        """
        found = {trial.user_attrs["run"]["key"]: trial for trial in self.proposals.runs()}
        return sorted(found.values(), key=attrgetter("number"))

    def mine(self) -> list[Any]:
        """Trials of this pool."""
        return [trial for trial in self.trials() if trial.user_attrs["pool"] == self.pool]

    def under_way(self) -> list[tuple[Any, Trial]]:
        """Trials of this pool that are not reported to the sampler yet."""
        return [(trial, self._run(trial)) for trial in _open(self.mine())]

    def elsewhere(self) -> int:
        """Trials that are under way on machines that share no directory with this one."""
        return len(_open(self.trials())) - len(_open(self.mine()))

    def _run(self, trial: Any) -> Trial:
        if trial.number not in self.runs:
            about, variant = trial.user_attrs["run"], self.base
            if about["variant"]["label"] != variant.label:
                kept: dict[str, Any] = {
                    k: tuple(v) if isinstance(v, list) else v for k, v in about["variant"].items()
                }
                # Its overrides compose it; only the logger is read from this config.
                variant = Variant(**kept, config=variant.config)
            node = {"storage": address(self.node), "id": trial._trial_id}
            node |= {key: self.node[key] for key in ("name", "metric", "design")}
            node["number"] = about["number"]
            reported = None if self.node["design"]["pruner"] == "none" else node
            self.runs[trial.number] = Trial(
                variant, self.first, about["key"], f"++study.trial={text(reported)}"
            )
        return self.runs[trial.number]

    def tell(self) -> None:
        """Tell the sampler what has become of trials that are over, and write the plan down."""
        for trial, run in self.under_way():
            now = state.of(self.plan.directory(run), pruned=True)
            if now.over:
                self._tell(trial, run, now)
        self.write()

    def _tell(self, trial: Any, run: StudyRun, now: state.State) -> None:
        from optuna.trial import TrialState

        name, number = self.node["metric"], trial._trial_id
        value = now.facts.get(name)
        if now.status == "finished" and not isinstance(value, (int, float)):
            return  # the metric does not exist, which the launching loop reports
        storage = self.study._storage
        _, curves = counted(now, self.plan.directory(run))
        with suppress(RuntimeError):  # another process has reported it in between
            for step, figure in zip(*curves.get(name, ((), ())), strict=True):
                # A run of another study reported nothing.
                if step not in trial.intermediate_values:
                    storage.set_trial_intermediate_value(number, step, figure)
            storage.set_trial_user_attr(
                number, "ended", {"status": now.status, "step": now.step, "why": now.why}
            )
            if now.status == "diverged":
                storage.set_trial_user_attr(number, "infeasible", 1.0)
        kinds = {"finished": TrialState.COMPLETE, "failed": TrialState.FAIL}
        kind = kinds.get(now.status, TrialState.PRUNED)
        values = float(value) if kind is TrialState.COMPLETE else None  # type: ignore[arg-type]
        with suppress(RuntimeError):
            self.study.tell(trial.number, values, state=kind, skip_if_finished=True)

    def write(self) -> None:
        """The plan as it is now: the trials of this pool, and the runs that confirm the best."""
        mine = [self._run(trial) for trial in self.mine()]
        self.plan.variants[1:] = [run.variant for run in mine if run.variant is not self.base]
        self.plan.runs[:] = [*mine, *(run for run in self.plan.runs if not isinstance(run, Trial))]
        self.plan.search = self.facts()
        self.plan.write()

    def facts(self) -> dict:
        """What a report shows of the search, as plain data."""
        known = [t.user_attrs for t in self.proposals.all() if t.state.is_finished()]
        return {
            "trials": self.node["design"]["trials"],
            "seed": self.first,
            "end": self.proposals.end,
            "refused": sum("refused" in attributes for attributes in known),
            "again": sum("again" in attributes for attributes in known),
            "elsewhere": self.elsewhere(),
            "confirmed": [variant.label for variant in self.confirmed],
            "commands": self.commands,
            "importance": self._importance(),
            "versions": {"optuna": version("optuna")},
            "points": [_point(t) for t in self.trials()],
        }

    def _importance(self) -> dict[str, float]:
        """Estimated anew when another trial has finished."""
        done = sum(t.state.name == "COMPLETE" for t in self.trials())
        if done != self.counted[0]:
            self.counted = done, importance(self.study)
        return self.counted[1]

    def take(self, held: ExitStack, count: int) -> list[Trial]:
        """Trials to run now, at most `count`: first those that dead processes left, then new ones.
        They are this process's until `held` closes, or the process ends.
        """
        with _alone(self.plan.folder):
            left = (run for _, run in self.under_way())
            held_runs = (run for run in chain(left, self._new()) if self._hold(run, held))
            runs = list(islice(held_runs, count))
        self.write()
        return runs

    def _new(self) -> Iterator[Trial]:
        while self._wanted() and (found := self.proposals.next()) is not None:
            yield self._signed(*found)

    def _wanted(self) -> bool:
        asked = any(t.state.name == "WAITING" for t in self.proposals.all())
        return asked or len(self.trials()) < self.node["design"]["trials"]

    def _hold(self, run: StudyRun, held: ExitStack) -> bool:
        where = self.plan.directory(run)
        return not state.claimed(where) and held.enter_context(state.claim(where, ASKED))

    def _judged(self, levels: Levels) -> tuple[Variant, str] | str:
        """A point's variant, composed, checked and brought to the budget, and its key; or why it is
        refused.
        """
        if any(pattern.items() <= levels.items() for pattern in excluded(self.node)):
            return "study.exclude leaves it out"
        words = words_of(self.factors, levels)
        config, wrong = self.plan.compose(words)
        if wrong:
            return str(wrong[0])
        named = label(self.factors, levels)
        try:
            variant = self.plan.size(
                Variant(named, name_of(self.node, named), levels, tuple(words), config)
            )
        except ConfigError as error:
            return error.messages[0]
        return variant, self.plan.costs.key({**variant.config, "seed": self.first})

    def _signed(self, trial: Any, variant: Variant, key: str) -> Trial:
        """The trial as a run. One that another search gave up goes on; one that failed is begun
        anew where that is asked.
        """
        trial.set_user_attr(
            "run", {"number": len(self.trials()), "key": key, "variant": variant.plain()}
        )
        found = self._run(next(t for t in self.proposals.runs() if t.number == trial.number))
        where = self.plan.directory(found)
        if state.of(where, pruned=True).status == "pruned":
            (where / summary.ENDED).unlink(missing_ok=True)
        return found

    def again(self) -> None:
        """Ask for those trials once more that failed or diverged."""
        with _alone(self.plan.folder):
            for trial in self.mine():
                if _ended(trial)["status"] in ("failed", "diverged"):
                    shutil.rmtree(self.plan.directory(self._run(trial)), ignore_errors=True)
                    self.study.enqueue_trial(trial.params, user_attrs={"retry": True})

    def confirming(self) -> list[StudyRun]:
        """The runs that confirm the best points, and the baseline, at the seeds of which the search
        knew nothing.
        """
        done = [trial for trial in self.trials() if _ended(trial)["status"] == "finished"]
        sign, confirm = metric_of(self.node).sign, self.node["design"]["confirm"]
        done.sort(key=lambda trial: (sign * trial.value, trial.number))
        ranked = [self._run(trial).variant for trial in done]
        best = [variant for variant in ranked if variant is not self.base][: confirm or 1]
        others = self.others if confirm else []
        self.confirmed = best if others else []
        configs = [(v, self.plan.compose(list(v.everything))[0]) for v in (self.base, *best)]
        self.commands |= {variant.label: to_overrides(config) for variant, config in configs}
        found = [  # all variants at the same seeds, where it is stopped
            StudyRun(variant, seed, self.plan.costs.key({**config, "seed": seed}))
            for seed in sorted(others if best else [])
            for variant, config in configs
        ]
        self.plan.runs[:] = [run for run in self.plan.runs if isinstance(run, Trial)] + found
        self.write()
        return found


def _open(trials: list[Any]) -> list[Any]:
    return [trial for trial in trials if not trial.state.is_finished()]


def _ended(trial: Any) -> dict:
    return trial.user_attrs.get("ended", {"status": "running", "step": None, "why": ""})


def _point(trial: Any) -> dict:
    about, ended = trial.user_attrs["run"], _ended(trial)
    kept = {key: about["variant"][key] for key in ("label", "levels", "words", "knob")}
    value = trial.value if ended["status"] == "finished" else None
    return {"number": about["number"], "key": about["key"], "value": value} | ended | kept


# trains runs until they are over; the code of the signal that stopped it, or 0
Launch = Callable[[list[StudyRun]], int]


def explore(search: SearchRunner, at_once: int, launch: Launch, look: Callable[[], None]) -> int:
    """Run trials until there are as many as were asked for, then confirm the best; returns what
    `launch` does.
    """
    ours = partial(_guarded, search)
    if search.node["retry"]:
        ours(search.again)
    while True:
        ours(search.tell)
        look()
        with ExitStack() as held:
            if runs := ours(search.take, held, at_once):
                stopped = launch(list(runs))
                ours(search.tell)
                if stopped:
                    return stopped
                continue
        if not ours(search.under_way):
            break
        time.sleep(PATIENCE)
    if search.elsewhere():
        return 0  # the last machine confirms
    return launch(runs) if (runs := ours(search.confirming)) else 0


def _guarded(search: SearchRunner, do: Callable[..., Any], *given: Any) -> Any:
    """Raises ConfigError where the storage does not answer; what is trained is kept."""
    try:
        return do(*given)
    except errors() as error:
        raise unreachable(address(search.node), error) from None


def side_by_side(launcher: Any, design: dict) -> int:
    """Trials that are proposed at once: as many as the launcher trains side by side, where it says
    so.
    """
    jobs = (getattr(launcher, "joblib", None) or {}).get("n_jobs", 1)
    if design["together"] is None and jobs not in (None, 1):
        from joblib import effective_n_jobs

        return max(1, effective_n_jobs(jobs))
    return design["together"] or 1


def _name(pool: Path) -> str:
    """What a directory of runs is called: the same for all machines that see it."""
    pool.mkdir(parents=True, exist_ok=True)
    path, beside = pool / ".pool", pool / f".pool.{uuid.uuid4().hex}"
    if not path.exists():
        beside.write_text(uuid.uuid4().hex)
        with suppress(FileExistsError):  # another process was faster
            os.link(beside, path)
        beside.unlink()
    return path.read_text()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process of this pool proposes at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".proposing", "w") as file:
        state.lock(file, wait=True)
        yield
