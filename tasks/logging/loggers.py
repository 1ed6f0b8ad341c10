"""Loggers: W&B, offline without a login, or TensorBoard. A logger that fails does not end the
run.
"""

import logging
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

from tasks.logging.wandb_run import begun, first_line, number
from tasks.types import Config, Figures, State

log = logging.getLogger("xformer")


def make(config: Config, run_dir: Path) -> tuple[Logger | None, str | None]:
    """The logger of a run, and a line for its user, such as how to sync."""
    name = config["logger"]["name"]
    try:
        if name == "wandb":
            return _wandb(config, run_dir)
        if name == "tensorboard":
            from lightning.pytorch.loggers import TensorBoardLogger

            return TensorBoardLogger(str(run_dir), name="", version="tensorboard"), None
    except (
        Exception
    ) as error:  # an account, a network or a package that fails is no reason to lose a run
        return (
            None,
            f"The logger {name} cannot start ({first_line(error)}); the csv files are written.",
        )
    return None, None


def _wandb(config: Config, run_dir: Path) -> tuple[Logger, str | None]:
    from lightning.pytorch.loggers import WandbLogger

    own = {
        "name": f"{config['name']}/{run_dir.name}",
        "id": number(run_dir),
        "resume": "allow",
        "config": config,
    }
    run, line = begun(config["logger"], run_dir, **own)
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    return WandbLogger(experiment=run), line


class SafeLogger:
    """Passes rows to a logger; after its first failure, which is logged, the logger is not used any
    more.
    """

    def __init__(self, logger: Logger | None):
        self.logger = logger

    def __call__(self, row: Figures, step: int) -> None:
        self._try(lambda logger: self._row(logger, row, step))

    def table(self, name: str, columns: list[Any], rows: list[list[Any]], step: int) -> None:
        def add(logger: Any) -> None:
            if hasattr(logger, "log_table"):
                import wandb

                table = wandb.Table(columns=columns, data=rows)
                logger.experiment.log({name: table, "step": step})
            elif hasattr(logger.experiment, "add_text"):
                logger.experiment.add_text(
                    name, "\n\n".join(" | ".join(map(str, row)) for row in rows), step
                )

        self._try(add)

    def picture(self, name: str, path: Path, step: int) -> None:
        """A PNG file as an image, for a logger that has a place for it."""

        def add(logger: Any) -> None:
            if hasattr(logger, "log_image"):
                import wandb

                logger.experiment.log({name: wandb.Image(str(path)), "step": step})
            elif hasattr(logger.experiment, "add_image"):
                import numpy as np
                from PIL import Image

                logger.experiment.add_image(
                    name, np.asarray(Image.open(path).convert("RGB")), step, dataformats="HWC"
                )

        self._try(add)

    def finish(self, summary: State, code: int) -> None:
        def close(logger: Any) -> None:
            if hasattr(logger, "log_table"):
                flat = {k: v for k, v in summary.items() if isinstance(v, (int, float, str))}
                logger.experiment.summary.update(flat)
                logger.experiment.finish(exit_code=code)
            else:
                logger.finalize("success" if code == 0 else "failed")

        self._try(close)

    @staticmethod
    def _row(logger: Any, row: Figures, step: int) -> None:
        if hasattr(logger, "log_table"):
            # By our own step: rows repeated after a resume are no error.
            logger.experiment.log(row | {"step": step})
        else:
            logger.log_metrics(row, step)

    def _try(self, act: Any) -> None:
        if self.logger is None:
            return
        try:
            act(self.logger)
        except Exception as error:
            log.warning(
                "The logger failed (%s) and is not used any more; the csv files continue.",
                first_line(error),
            )
            self.logger = None
