"""Reports every validation of a trial to its search's storage, and ends the trial if the pruner
decides so.

The pruner compares all trials at the same steps (Li et al., 2018, arXiv:1810.05934, for successive
halving; the median rule is that of Golovin et al., 2017, Google Vizier, section 3.2.2).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks import State
from tasks.callbacks.cadence import Cadence
from tasks.evaluation import EvaluatedTask as Task
from tasks.run.exit_codes import Pruned
from xformer_kit.registry import ConfigError

log = logging.getLogger("xformer")


@dataclass(eq=False)
class Pruning:
    """Ends a run that is a trial. `trial`: {storage, name, id, metric, design}; `save()` saves the
    run's state.

    If the storage does not answer, a warning is logged and the run continues to its last step.
    """

    cadence: Cadence
    trial: State
    save: Callable[[], None]
    of_storage: Any = None

    def on_train_start(self, trainer: Any, task: Task) -> None:
        """A run that was stopped between its verdict and its end has its verdict."""
        if 0 < task.step < self.cadence.total and self._voted(trainer, task, None):
            self._end(task)

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        value = task.validation.get(self.trial["metric"].removeprefix("val/"))
        last = task.step >= self.cadence.total
        if value is not None and self._voted(trainer, task, value) and not last:
            self._end(task)

    def _voted(self, trainer: Any, task: Task, value: float | None) -> bool:
        """The first rank queries the pruner, and all ranks follow."""
        hopeless = trainer.is_global_zero and self._hopeless(task.step, value)
        return bool(trainer.strategy.broadcast(hopeless)) if trainer.world_size > 1 else hopeless

    def _hopeless(self, step: int, value: float | None) -> bool:
        from tasks.study.storage import errors, trial_of

        broken: tuple[type[Exception], ...] = (*errors(), OSError, ConfigError)
        try:
            self.of_storage = trial = self.of_storage or trial_of(self.trial)
            design, known = self.trial["design"], trial.storage.get_trial(trial._trial_id)
            if known.state.is_finished():  # another process has ended the trial
                return False
            if step not in known.intermediate_values:
                if value is None:
                    return False
                trial.report(value, step)
            spared = self.trial["number"] < design["whole"] or step < design["warmup"]
            return not spared and bool(trial.should_prune())
        except broken as error:
            log.warning(
                "The search's storage does not answer (%s); the run goes on.",
                str(error).splitlines()[0],
            )
            return False

    def _end(self, task: Task) -> None:
        self.save()
        raise Pruned(task.step)
