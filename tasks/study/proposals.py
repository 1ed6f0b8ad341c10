"""The next point of a search: Optuna proposes; a point that is no valid model, or was tried
already, is reported to it and replaced.

A refused point is reported as one that breaks a constraint, so the sampler keeps away from its
like. One that was tried already is reported as failed, which samplers leave out: its figure would
count twice.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from xformer_kit.study import space
from xformer_kit.study.factor import Factors, Levels
from xformer_kit.study.plan import Variant

# proposals in a row that are no trials: the space is then looked through; the search is at its end
FUTILE, MOST = 20, 200
YOUNG = timedelta(seconds=60)  # in which a proposal that nobody has signed may be another machine's
Judge = Callable[
    [Levels], tuple[Variant, str] | str
]  # a point -> its variant and key, or why it is refused


@dataclass
class Proposals:
    """New trials of a search. One process of a pool proposes at a time."""

    study: Any
    factors: Factors
    base: Levels
    pool: str
    shared: bool  # whether other pools may use the storage
    judge: Judge
    end: str = ""  # why there are no more points

    def all(self) -> list[Any]:
        return self.study.get_trials(deepcopy=False)

    def runs(self) -> list[Any]:
        """Trials that are runs."""
        return [trial for trial in self.all() if "run" in trial.user_attrs]

    def next(self) -> tuple[Any, Variant, str] | None:
        """A trial with its variant and key, valid and not tried yet; None where there is no more,
        and `end` says why.
        """
        from optuna.trial import TrialState

        if not self.all():
            self.study.enqueue_trial(space.parameters(self.factors, self.base))
        while not self._over():
            trial = self._asked()
            trial.set_user_attr("pool", self.pool)
            levels = space.suggested(self.factors, trial)
            trial.set_user_attr("levels", levels)
            found = self._judged(levels)
            if isinstance(found, str):
                trial.set_user_attr("refused", found)
                trial.set_user_attr("infeasible", 1.0)
                self.study.tell(trial.number, state=TrialState.PRUNED)
            elif "retry" not in trial.user_attrs and any(
                run.user_attrs["run"]["key"] == found[1] for run in self.runs()
            ):
                trial.set_user_attr("again", found[1])
                self.study.tell(trial.number, state=TrialState.FAIL)
            else:
                return trial, *found
        return None

    def _judged(self, levels: Levels) -> tuple[Variant, str] | str:
        for earlier in self.all():
            if earlier.user_attrs.get("levels") == levels and "refused" in earlier.user_attrs:
                return str(earlier.user_attrs["refused"])
        return self.judge(levels)

    def _asked(self) -> Any:
        """The trial that Optuna proposes now, or the one that a dead process had asked for and not
        come to judge.
        """
        from optuna.trial import Trial

        for left in self.all():
            if left.state.name == "RUNNING" and "run" not in left.user_attrs:
                # Another machine may be about to sign a young one.
                young = self.shared and datetime.now() - left.datetime_start < YOUNG
                if left.user_attrs.get("pool", None if young else self.pool) == self.pool:
                    return Trial(self.study, left._trial_id)
        return self.study.ask()

    def _over(self) -> bool:
        """Whether the space holds no more points that could be trials; a small one is looked
        through.
        """
        found = self.all()
        if any(t.state.name == "WAITING" for t in found):
            return False
        futile = self._futile(found)
        if (every := space.points(self.factors)) is not None:
            tried = [
                t.user_attrs.get("levels")
                for t in found
                if t.state.name != "RUNNING" or "run" in t.user_attrs
            ]
            left = [levels for levels in every if levels not in tried]
            if not left:
                self.end = f"All {len(every):,} points of the space were tried or refused."
            elif futile >= FUTILE:
                draw = random.Random(hashlib.sha256(f"{len(found)}".encode()).digest())
                self.study.enqueue_trial(space.parameters(self.factors, draw.choice(left)))
            return not left
        if futile >= MOST:
            refused = [t.user_attrs["refused"] for t in found if "refused" in t.user_attrs]
            why = refused[-1] if refused else "they were tried"
            self.end = f"{MOST} proposals in a row were no new models, the last for: {why}"
        return bool(self.end)

    @staticmethod
    def _futile(found: list[Any]) -> int:
        """Proposals in a row, up to the last, that are no trials."""
        ended = [t for t in found if t.state.is_finished() or "run" in t.user_attrs]
        return next((i for i, t in enumerate(reversed(ended)) if "run" in t.user_attrs), len(ended))
