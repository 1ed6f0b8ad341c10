"""What a logger of a run receives."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tasks import Config, State
from xformer_kit.config.saved.difference import as_literal, flat
from xformer_kit.metrics import VAL


class OfRun:
    """Mixin of Lightning's loggers, to which users' callbacks and `task.log` pass values. They go
    to `pass_on(values, step or None)`, which writes them like the run's own. The run saves and ends
    its loggers itself, since an error of a logger must not end it.
    """

    pass_on: Callable[[Mapping[str, float], int | None], None]

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.pass_on(metrics, step)

    def save(self) -> None:
        """Does nothing; Lightning calls it."""

    def finalize(self, status: str) -> None:
        """Does nothing; Lightning calls it."""

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        super().log_metrics(metrics, step)  # type: ignore[misc]

    def end(self, status: str) -> None:
        super().finalize(status)  # type: ignore[misc]


def of_run(logger_class: type) -> Any:
    """Returns the class of one of Lightning's loggers with the mixin OfRun."""
    return type(f"{logger_class.__name__}OfRun", (OfRun, logger_class), {})


class RunLogger:
    """Base of the loggers of a run. A method may raise any error: the logger is then not used any
    more.

    lightning: the logger of Lightning's Trainer, with the mixin OfRun.
    tokens: returns the number of training tokens up to now.
    """

    tokens: Callable[[], float] = staticmethod(lambda: 0)

    def __init__(self, lightning: Any):
        self.lightning = lightning

    def log(self, row: Mapping[str, float], step: int) -> None:
        """Log the values of a step. A step may be repeated after a resume."""
        self.lightning.write(row, step)

    def table(self, name: str, columns: list[Any], rows: list[list[Any]], step: int) -> None:
        """Log a table."""

    def picture(self, name: str, path: Path, step: int) -> None:
        """Log a PNG file as an image."""

    def checkpoint(self, step: int) -> None:
        """Called after a checkpoint has been saved."""

    def finish(self, summary: State, code: int) -> None:
        """End the run; summary: the content of summary.json, empty if the run has not finished;
        code: its exit code.
        """
        self.lightning.end("success" if code == 0 else "failed")


def not_of_steps(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the metrics of a result that no step has logged under the same name."""
    return {
        name: value
        for name, value in metrics.items()
        if not name.startswith(VAL) and name not in ("tokens_per_second", "mfu")
    }


def flat_config(config: Config) -> dict[str, Any]:
    """Returns {config path: value}, for loggers that take numbers and texts: null, true, false and
    lists are texts.
    """
    return {
        path: value if type(value) in (int, float, str) else str(as_literal(value))
        for path, value in flat(config)
    }
