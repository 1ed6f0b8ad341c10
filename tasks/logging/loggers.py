"""Loggers: W&B, offline without a login, or TensorBoard. A logger that fails does not end the
run.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

from tasks import Config, Metrics, State
from tasks.logging.wandb_run import first_line, start_wandb_run, wandb_id

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
        "id": wandb_id(run_dir),
        "resume": "allow",
        "config": config,
    }
    run, line = start_wandb_run(config["logger"], run_dir, **own)
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    return WandbLogger(experiment=run), line


@dataclass(eq=False)
class SafeLogger:
    """Passes rows to a logger; after its first failure, which is logged, the logger is not used any
    more. W&B gets our own step in each row: rows repeated after a resume are no error.
    """

    logger: Any

    def __call__(self, row: Metrics, step: int) -> None:
        self._try(
            lambda _, run: run.log(row | {"step": step}),
            lambda _: self.logger.log_metrics(row, step),
        )

    def table(self, name: str, columns: list[Any], rows: list[list[Any]], step: int) -> None:
        text = "\n\n".join(" | ".join(map(str, row)) for row in rows)
        self._try(
            lambda wandb, run: run.log(
                {name: wandb.Table(columns=columns, data=rows), "step": step}
            ),
            lambda writer: writer.add_text(name, text, step),
        )

    def picture(self, name: str, path: Path, step: int) -> None:
        """A PNG file as an image."""

        def add(writer: Any) -> None:
            import numpy as np
            from PIL import Image

            pixels = np.asarray(Image.open(path).convert("RGB"))
            writer.add_image(name, pixels, step, dataformats="HWC")

        self._try(
            lambda wandb, run: run.log({name: wandb.Image(str(path)), "step": step}),
            add,
        )

    def finish(self, summary: State, code: int) -> None:
        def end(wandb: Any, run: Any) -> None:
            flat = {k: v for k, v in summary.items() if isinstance(v, (int, float, str))}
            run.summary.update(flat)
            run.finish(exit_code=code)

        self._try(end, lambda _: self.logger.finalize("success" if code == 0 else "failed"))

    def _try(
        self, of_wandb: Callable[[Any, Any], object], of_tensorboard: Callable[[Any], object]
    ) -> None:
        """Call the one with the module wandb and the run, or the other with the writer."""
        try:
            if hasattr(self.logger, "log_table"):
                import wandb

                of_wandb(wandb, self.logger.experiment)
            elif self.logger is not None:
                of_tensorboard(self.logger.experiment)
        except Exception as error:
            log.warning(
                "The logger failed (%s) and is not used any more; the csv files continue.",
                first_line(error),
            )
            self.logger = None
