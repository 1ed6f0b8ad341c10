"""What a logger of a run receives."""

from pathlib import Path
from typing import Any

from tasks import Config, Metrics, State
from xformer_kit.config.difference import as_literal, flat


class RunLogger:
    """Base of the loggers of a run. A method may raise any error: the logger is then not used any
    more.

    lightning: the logger of Lightning's Trainer, which a user's callbacks may use.
    """

    def __init__(self, lightning: Any):
        self.lightning = lightning

    def log(self, row: Metrics, step: int) -> None:
        """Log the values of a step. A step may be repeated after a resume."""
        self.lightning.log_metrics(row, step)

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
        self.lightning.finalize("success" if code == 0 else "failed")


def flat_config(config: Config) -> dict[str, Any]:
    """Returns {config path: value}, for loggers that take numbers and texts: null, true, false and
    lists are texts.
    """
    return {
        path: value if type(value) in (int, float, str) else str(as_literal(value))
        for path, value in flat(config)
    }
