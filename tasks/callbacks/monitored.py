"""The values of metrics that decide which checkpoints are kept and when a run stops."""

import math
from dataclasses import dataclass, field
from typing import Any

from tasks.evaluation import EvaluatedTask as Task
from xformer_kit.config.metric_names import PREFIX
from xformer_kit.registry import config_error, suggestion


def monitored_value(option: str, name: str, trainer: Any, task: Task) -> float:
    """Returns the value of the metric `name` after a validation, equal on all ranks. It is one of
    the validation, or one that a callback has logged with `task.log`.

    Raises ConfigError, with the path of the `option` that names it, if there is none.
    """
    metrics = {f"{PREFIX}{key}": value for key, value in task.validation.items()}
    if name in metrics:
        return metrics[name]
    logged = trainer.callback_metrics
    if name not in logged:
        known = dict.fromkeys([*metrics, *(key for key in logged if key.startswith(PREFIX))])
        rule = f"the validation has no metric '{name}'"
        raise config_error(option, rule, fix=suggestion(name, [*known]))
    return float(trainer.strategy.broadcast(float(logged[name])))


@dataclass
class Ranking:
    """The steps with the best values of a metric, the best first, and the first of equal ones."""

    metric: str
    mode: str  # min or max
    count: int  # number of steps that are kept
    entries: list[list[Any]] = field(default_factory=list)  # [step, value], saved in checkpoints

    def add(self, step: int, value: float) -> bool:
        """Adds a step; returns whether it is one of the best. NaN never is."""
        if math.isnan(value):
            return False
        sign = 1 if self.mode == "min" else -1
        # A step that is repeated after a resume replaces itself.
        entries = [entry for entry in self.entries if entry[0] != step] + [[step, value]]
        entries.sort(key=lambda entry: (sign * entry[1], entry[0]))
        self.entries = entries[: self.count]
        return [step, value] in self.entries

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.entries]
