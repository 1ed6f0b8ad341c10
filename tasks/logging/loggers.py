"""Creates the logger of a run: W&B or TensorBoard. A logger that fails does not end the run."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

from tasks import Config, Metrics, State
from tasks.logging.wandb_run import error_line, start_wandb_run, wandb_id

log = logging.getLogger("xformer")


def create_logger(config: Config, run_dir: Path) -> tuple[Logger | None, str | None]:
    """Returns (the logger of a run or None, a message to its user or None)."""
    name = config["logger"]["name"]
    try:
        if name == "wandb":
            return _create_wandb_logger(config, run_dir)
        if name == "tensorboard":
            from lightning.pytorch.loggers import TensorBoardLogger

            return TensorBoardLogger(str(run_dir), name="", version="tensorboard"), None
    except Exception as error:  # of an account, a network or a package
        reason = error_line(error)
        return None, f"The logger {name} cannot start ({reason}); the csv files are written."
    return None, None


def _create_wandb_logger(config: Config, run_dir: Path) -> tuple[Logger, str | None]:
    from lightning.pytorch.loggers import WandbLogger

    run, message = start_wandb_run(
        config["logger"],
        run_dir,
        name=f"{config['name']}/{run_dir.name}",
        id=wandb_id(run_dir),
        resume="allow",
        config=config,
    )
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    return WandbLogger(experiment=run), message


@dataclass(eq=False)
class SafeLogger:
    """Passes values to a logger or to none. After the first failure, which is logged, the logger is
    not used any more.

    For W&B the step is one of the values, so that steps repeated after a resume are accepted.
    """

    logger: Any

    def __call__(self, row: Metrics, step: int) -> None:
        self._call(
            lambda _, run: run.log(row | {"step": step}),
            lambda _: self.logger.log_metrics(row, step),
        )

    def table(self, name: str, columns: list[Any], rows: list[list[Any]], step: int) -> None:
        text = "\n\n".join(" | ".join(map(str, row)) for row in rows)
        self._call(
            lambda wandb, run: run.log(
                {name: wandb.Table(columns=columns, data=rows), "step": step}
            ),
            lambda writer: writer.add_text(name, text, step),
        )

    def picture(self, name: str, path: Path, step: int) -> None:
        """Log a PNG file as an image."""

        def add_to_tensorboard(writer: Any) -> None:
            import numpy as np
            from PIL import Image

            pixels = np.asarray(Image.open(path).convert("RGB"))
            writer.add_image(name, pixels, step, dataformats="HWC")

        self._call(
            lambda wandb, run: run.log({name: wandb.Image(str(path)), "step": step}),
            add_to_tensorboard,
        )

    def finish(self, summary: State, code: int) -> None:
        def finish_wandb(wandb: Any, run: Any) -> None:
            flat = {k: v for k, v in summary.items() if isinstance(v, (int, float, str))}
            run.summary.update(flat)
            run.finish(exit_code=code)

        status = "success" if code == 0 else "failed"
        self._call(finish_wandb, lambda _: self.logger.finalize(status))

    def _call(
        self,
        with_wandb: Callable[[Any, Any], object],
        with_tensorboard: Callable[[Any], object],
    ) -> None:
        """Call the first with the module wandb and the run, or the second with the writer."""
        try:
            if hasattr(self.logger, "log_table"):
                import wandb

                with_wandb(wandb, self.logger.experiment)
            elif self.logger is not None:
                with_tensorboard(self.logger.experiment)
        except Exception as error:
            log.warning(
                "The logger failed (%s) and is not used any more; the csv files continue.",
                error_line(error),
            )
            self.logger = None
