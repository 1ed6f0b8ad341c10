"""Creates the loggers of a run. A logger that fails does not end the run."""

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from traceback import walk_stack
from typing import Any

from tasks import Config, Facts, Metrics, State
from tasks.logging.mlflow_logger import create_mlflow
from tasks.logging.run_logger import RunLogger, of_run
from tasks.logging.tensorboard_logger import create_tensorboard
from tasks.logging.wandb_logger import create_wandb
from tasks.logging.wandb_run import error_line
from xformer_kit.config.options.logger_options import LOGGERS, as_loggers

CALLBACKS = "lightning.pytorch.callbacks"
log = logging.getLogger("xformer")
# Name -> function of (node of the logger, config, run_dir) that returns (logger, message or None).
CREATE: dict[str, Callable[..., tuple[RunLogger, str | None]]] = {
    "wandb": create_wandb,
    "tensorboard": create_tensorboard,
    "mlflow": create_mlflow,
}


@dataclass(eq=False)
class Loggers:
    """Passes values to each logger of a run. After its first failure, which is logged, a logger is
    not used any more.
    """

    loggers: dict[str, RunLogger] = field(default_factory=dict)

    def follow(
        self, step: Callable[[], int], tokens: Callable[[], float], record: Callable[..., None]
    ) -> None:
        """Sets the functions that return how many steps and tokens the run has trained, and the one
        that receives what callbacks log.
        """
        for name, logger in self.loggers.items():
            logger.tokens = tokens
            logger.lightning.pass_on = partial(self._pass_on, name, step, record)

    @property
    def lightning(self) -> list[Any]:
        """Lightning's loggers, for the Trainer."""
        return [logger.lightning for logger in self.loggers.values()]

    def __call__(self, row: Metrics, step: int) -> None:
        self._call("log", row, step)

    def table(self, name: str, columns: list[Any], rows: list[list[Any]], step: int) -> None:
        self._call("table", name, columns, rows, step)

    def picture(self, name: str, path: Path, step: int) -> None:
        self._call("picture", name, path, step)

    def checkpoint(self, step: int) -> None:
        self._call("checkpoint", step)

    def finish(self, summary: State, code: int) -> None:
        self._call("finish", summary, code)

    def _pass_on(
        self,
        name: str,
        steps_done: Callable[[], int],
        record: Callable[..., None],
        row: Mapping[str, float],
        step: int | None,
    ) -> None:
        """Passes a callback's values to `record` and one logger, with the step that they belong to.
        Lightning counts a step only when its validation is over, and adds its epoch, which is
        always 0.
        """
        done = steps_done()
        values = {key: value for key, value in row.items() if (key, value) != ("epoch", 0)}
        if values:
            modules = (
                frame.f_globals.get("__name__", "") for frame, _ in walk_stack(sys._getframe())
            )
            record(values, of_lightning=any(name.startswith(CALLBACKS) for name in modules))
            self._call("log", values, done if step in (None, done - 1) else step, only=name)

    def _call(self, method: str, *arguments: Any, only: str | None = None) -> None:
        """Calls a method of RunLogger on each logger, or only on one."""
        for name, logger in [*self.loggers.items()]:
            if only not in (None, name):
                continue
            try:
                getattr(logger, method)(*arguments)
            except Exception as error:
                log.warning(
                    "The logger %s failed (%s) and is not used any more; the csv files continue.",
                    name,
                    error_line(error),
                )
                del self.loggers[name]


def create_own(name: str, node: Facts, config: Config, run_dir: Path) -> tuple[RunLogger, None]:
    """Returns (a user's logger, None). Raises TypeError if it is no logger of Lightning."""
    from lightning.pytorch.loggers import Logger

    if not issubclass(LOGGERS[name], Logger):
        raise TypeError("it is no lightning.pytorch.loggers.Logger")
    passed = dict.fromkeys(LOGGERS.model_arguments(name), run_dir)
    return RunLogger(of_run(LOGGERS[name])(**passed, **node)), None


def create_loggers(config: Config, run_dir: Path) -> tuple[Loggers, list[str]]:
    """Returns (the loggers of a run that can start, messages to its user). Without any, a logger of
    Lightning that writes nothing passes on what callbacks log.
    """
    from lightning.pytorch.loggers.logger import DummyLogger

    found, messages = {}, []
    for name, options in as_loggers(config["logger"]).items():
        built_in = LOGGERS[name].__module__.startswith("xformer_kit.")
        create = CREATE.get(name) if built_in else partial(create_own, name)
        if create is None:  # csv and none
            continue
        try:
            found[name], message = create(options, config, run_dir)
        except Exception as error:  # of an account, a network or a package
            reason = error_line(error)
            message = f"The logger {name} cannot start ({reason}); the csv files are written."
        if message:
            messages.append(message)
    return Loggers(found or {"none": RunLogger(of_run(DummyLogger)())}), messages
