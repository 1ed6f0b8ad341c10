"""Reports each validation of a trial to the storage of its search, and ends the trial if the pruner
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
from tasks.modules.evaluation import EvaluatedTask as Task
from tasks.process.exit_codes import Pruned
from xformer_kit.metrics import VAL
from xformer_kit.registry import ConfigError

log = logging.getLogger("xformer")


@dataclass(eq=False)
class Pruning:
    """Ends a run that is a trial of a search, if its pruner decides so. trial: {storage, name, id,
    number, metric, design}; `save()` saves the run's state.

    If the storage cannot be reached, a warning is logged and the run continues to its last step.
    """

    cadence: Cadence
    trial: State
    save: Callable[[], None]
    storage_trial: Any = None  # the trial in the storage

    def on_train_start(self, trainer: Any, task: Task) -> None:
        """End a run that was killed after the pruner's decision and before its end."""
        if 0 < task.step < self.cadence.total and self._is_pruned(trainer, task, None):
            self._end(task)

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        value = task.validation.get(self.trial["metric"].removeprefix(VAL))
        last = task.step >= self.cadence.total
        if value is not None and self._is_pruned(trainer, task, value) and not last:
            self._end(task)

    def _is_pruned(self, trainer: Any, task: Task, value: float | None) -> bool:
        """Returns the pruner's decision, which rank 0 requests, on all ranks."""
        pruned = trainer.is_global_zero and self._report(task.step, value)
        return bool(trainer.strategy.broadcast(pruned)) if trainer.world_size > 1 else pruned

    def _report(self, step: int, value: float | None) -> bool:
        """Report a value, unless it is already stored, and return the pruner's decision. None: only
        for a value that is already stored.
        """
        from tasks.study.storage import errors, trial_of

        storage_errors: tuple[type[Exception], ...] = (*errors(), OSError, ConfigError)
        try:
            self.storage_trial = trial = self.storage_trial or trial_of(self.trial)
            design, stored = self.trial["design"], trial.storage.get_trial(trial._trial_id)
            if stored.state.is_finished():  # another process has ended the trial
                return False
            if step not in stored.intermediate_values:
                if value is None:
                    return False
                trial.report(value, step)
            is_exempt = self.trial["number"] < design["whole"] or step < design["warmup"]
            return not is_exempt and bool(trial.should_prune())
        except storage_errors as error:
            log.warning(
                "The search's storage cannot be reached (%s); the run continues.",
                str(error).splitlines()[0],
            )
            return False

    def _end(self, task: Task) -> None:
        self.save()
        raise Pruned(task.step)
