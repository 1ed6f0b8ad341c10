"""Proposes the next point of a search with Optuna. Invalid and duplicate points are replaced.

An invalid point is reported to Optuna as violating a constraint, so the sampler avoids similar
ones. A duplicate is reported as failed, which samplers ignore; its value would count twice.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from xformer_kit.study import space
from xformer_kit.study.factor import Factors, Levels
from xformer_kit.study.plan import Variant

# Consecutive invalid or duplicate proposals after which a small space is enumerated, and after
# which the search in a large one ends.
ENUMERATE_AFTER, END_AFTER = 20, 200
RECENT = timedelta(seconds=60)  # age up to which an unclaimed proposal may be another machine's
# a point -> its variant and run key, or why it is invalid
MakeVariant = Callable[[Levels], tuple[Variant, str] | str]


@dataclass
class Proposals:
    """New trials of a search. One process of a pool proposes at a time."""

    study: Any
    factors: Factors
    base: Levels
    pool: str
    shared: bool  # whether other pools may use the storage
    make_variant: MakeVariant
    end: str = ""  # why there are no more points; empty while there are

    def all(self) -> list[Any]:
        """Returns all trials of Optuna's study."""
        return self.study.get_trials(deepcopy=False)

    def runs(self) -> list[Any]:
        """Returns Optuna's trials that are runs of the study."""
        return [trial for trial in self.all() if "run" in trial.user_attrs]

    def next(self) -> tuple[Any, Variant, str] | None:
        """Returns a new valid trial with its variant and run key; None if there is none, with the
        reason in `end`.
        """
        from optuna.trial import TrialState

        if not self.all():
            self.study.enqueue_trial(space.optuna_parameters(self.factors, self.base))
        while not self._exhausted():
            trial = self._propose()
            trial.set_user_attr("pool", self.pool)
            levels = space.suggest_levels(self.factors, trial)
            trial.set_user_attr("levels", levels)
            variant = self.make_variant(levels)
            if isinstance(variant, str):
                trial.set_user_attr("refused", variant)
                trial.set_user_attr("infeasible", 1.0)
                self.study.tell(trial.number, state=TrialState.PRUNED)
            elif "retry" not in trial.user_attrs and any(
                run.user_attrs["run"]["key"] == variant[1] for run in self.runs()
            ):
                trial.set_user_attr("again", variant[1])
                self.study.tell(trial.number, state=TrialState.FAIL)
            else:
                return trial, *variant
        return None

    def _propose(self) -> Any:
        """Returns a new trial of Optuna, or one that a process proposed before it died."""
        from optuna.trial import Trial

        for trial in self.all():
            if trial.state.name == "RUNNING" and "run" not in trial.user_attrs:
                # A recent one may be another machine's, which has not set its pool yet.
                recent = self.shared and datetime.now() - trial.datetime_start < RECENT
                if trial.user_attrs.get("pool", None if recent else self.pool) == self.pool:
                    return Trial(self.study, trial._trial_id)
        return self.study.ask()

    def _exhausted(self) -> bool:
        """Whether there are no more new valid points. A small space is enumerated."""
        trials = self.all()
        if any(t.state.name == "WAITING" for t in trials):
            return False
        ended = [t for t in trials if t.state.is_finished() or "run" in t.user_attrs]
        # consecutive invalid or duplicate proposals, up to the last one
        useless = len([*takewhile(lambda t: "run" not in t.user_attrs, reversed(ended))])
        if (points := space.all_points(self.factors)) is not None:
            tried = [t.user_attrs.get("levels") for t in ended]
            untried = [levels for levels in points if levels not in tried]
            if not untried:
                self.end = f"All {len(points):,} points of the space were tried or refused."
            elif useless >= ENUMERATE_AFTER:
                levels = random.Random(len(trials)).choice(untried)
                self.study.enqueue_trial(space.optuna_parameters(self.factors, levels))
        elif useless >= END_AFTER:
            refused = [t.user_attrs["refused"] for t in trials if "refused" in t.user_attrs]
            why = refused[-1] if refused else "duplicate"
            self.end = (
                f"{END_AFTER} consecutive proposals were invalid or duplicates; the last: {why}"
            )
        return bool(self.end)
