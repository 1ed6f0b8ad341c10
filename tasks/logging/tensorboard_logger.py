"""The logger `tensorboard`."""

from pathlib import Path
from typing import Any

from tasks import Config, Facts, State
from tasks.logging.run_logger import RunLogger, flat_config, not_of_steps, of_run
from tasks.logging.summary import final_metrics


class TensorBoardRunLogger(RunLogger):
    """Writes TensorBoard event files. A finished run has the config and its final metrics as
    hyper-parameters, a row of the tab HPARAMS.
    """

    def __init__(self, lightning: Any, config: Config):
        super().__init__(lightning)
        self.config = config

    def table(self, name: str, columns: list[Any], rows: list[list[Any]], step: int) -> None:
        text = "\n\n".join(" | ".join(map(str, row)) for row in rows)
        self.lightning.experiment.add_text(name, text, step)

    def picture(self, name: str, path: Path, step: int) -> None:
        import numpy as np
        from PIL import Image

        pixels = np.asarray(Image.open(path).convert("RGB"))
        self.lightning.experiment.add_image(name, pixels, step, dataformats="HWC")

    def finish(self, summary: State, code: int) -> None:
        if summary:
            # The last validation is written already.
            self.lightning.pass_on = lambda row, step: self.lightning.write(not_of_steps(row), step)
            metrics = final_metrics(summary)
            self.lightning.log_hyperparams(flat_config(self.config), metrics, summary["steps"])
        super().finish(summary, code)


def create_tensorboard(node: Facts, config: Config, run_dir: Path) -> tuple[RunLogger, None]:
    """Returns (logger, None); the files are in the run's tensorboard/."""
    from lightning.pytorch.loggers import TensorBoardLogger

    lightning = of_run(TensorBoardLogger)(str(run_dir), name="", version="tensorboard")
    return TensorBoardRunLogger(lightning, config), None
