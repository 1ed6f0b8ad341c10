"""The logger `tensorboard`."""

from pathlib import Path
from typing import Any

from tasks import Config, Facts
from tasks.logging.run_logger import RunLogger


class TensorBoardRunLogger(RunLogger):
    """Writes TensorBoard event files."""

    def table(self, name: str, columns: list[Any], rows: list[list[Any]], step: int) -> None:
        text = "\n\n".join(" | ".join(map(str, row)) for row in rows)
        self.lightning.experiment.add_text(name, text, step)

    def picture(self, name: str, path: Path, step: int) -> None:
        import numpy as np
        from PIL import Image

        pixels = np.asarray(Image.open(path).convert("RGB"))
        self.lightning.experiment.add_image(name, pixels, step, dataformats="HWC")


def create_tensorboard(node: Facts, config: Config, run_dir: Path) -> tuple[RunLogger, None]:
    """Returns (logger, None); the files are in the run's tensorboard/."""
    from lightning.pytorch.loggers import TensorBoardLogger

    logger = TensorBoardLogger(str(run_dir), name="", version="tensorboard")
    return TensorBoardRunLogger(logger), None
