"""The values of metrics that decide which checkpoints are kept and when a run stops."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tasks import Metrics
from tasks.modules.evaluation import EvaluatedTask as Task
from xformer_kit.metrics import TRAIN_LOSS, VAL, of_split
from xformer_kit.registry import ConfigError, config_error, suggestion


def set_callback_metrics(trainer: Any, row: Metrics) -> None:
    """Adds values to trainer.callback_metrics, which a user's callbacks read."""
    trainer.callback_metrics.update({name: torch.tensor(value) for name, value in row.items()})


@dataclass(eq=False)
class MonitoredMetrics:
    """Raises ConfigError before the first step if the run has no metric that an option names, and
    at a validation in which a callback that logs it has not: Lightning keeps the value of an
    earlier validation, which a resumed run would not have.
    """

    names: dict[str, str]  # config path of the option -> metric
    more_are_logged: bool  # whether callbacks may log more metrics with `task.log`
    logged_before: Mapping[str, Any] = field(default_factory=dict)

    def on_train_start(self, trainer: Any, task: Task) -> None:
        known = [TRAIN_LOSS, *(f"{VAL}{n}" for n in task.split_metrics.names())]
        known += of_split(task.validation)
        for option, metric in self.names.items():
            if metric in known or self.more_are_logged:
                continue
            # They are computed once only for their names.
            known += of_split(task.validation_metrics())
            if metric not in known:
                raise missing_metric(option, metric, known)

    def on_validation_start(self, trainer: Any, task: Task) -> None:
        self.logged_before = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Any, task: Task) -> None:
        logged, before = trainer.callback_metrics, self.logged_before
        for option, metric in self.names.items():
            if metric == TRAIN_LOSS or metric.removeprefix(VAL) in task.validation:
                continue
            # Lightning has another tensor for a metric that is logged again.
            if metric in logged and logged[metric] is before.get(metric):
                raise config_error(
                    option,
                    f"no callback has logged '{metric}' in the validation of step {task.step:,}",
                    fix="Log it in each validation, in on_validation_epoch_end.",
                )


def missing_metric(option: str, metric: str, known: Iterable[str]) -> ConfigError:
    fix = suggestion(metric, dict.fromkeys(known))
    return config_error(option, f"the run has no metric '{metric}'", fix=fix)


def monitored_value(metric: str, trainer: Any, task: Task) -> float:
    """Returns the value of checkpoints.metric after a validation, equal on all ranks: one of the
    validation, the training loss, or one that a callback has logged with `task.log`.

    Raises ConfigError if there is none.
    """
    metrics = of_split(task.validation)
    if metric in metrics:
        return metrics[metric]
    logged = trainer.callback_metrics
    if metric not in logged:
        known = (TRAIN_LOSS, *metrics, *(key for key in logged if key.startswith(VAL)))
        raise missing_metric("checkpoints.metric", metric, known)
    return float(trainer.strategy.broadcast(float(logged[metric])))


@dataclass
class Ranking:
    """The steps with the best values of a metric, the best first, and the first of equal ones."""

    metric: str
    mode: str  # min or max
    count: int  # number of steps that are kept
    entries: list[tuple[int, float]] = field(default_factory=list)  # (step, value)

    def add(self, step: int, value: float) -> bool:
        """Adds a step; returns whether it is one of the best. NaN never is."""
        if math.isnan(value):
            return False
        sign = 1 if self.mode == "min" else -1
        # A step that is repeated after a resume replaces itself.
        entries = [entry for entry in self.entries if entry[0] != step] + [(step, value)]
        entries.sort(key=lambda entry: (sign * entry[1], entry[0]))
        self.entries = entries[: self.count]
        return (step, value) in self.entries

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.entries]
