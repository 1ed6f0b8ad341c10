"""The Lightning data module of a run."""

from typing import Any

import lightning.pytorch as pl
from torch.utils.data import DataLoader

from xformer_kit.data.training_data import TrainingData


class DataModule(pl.LightningDataModule):
    """Loaders for the trainer's devices and for the micro-batches of its task."""

    def __init__(self, data: TrainingData):
        super().__init__()
        self.data = data
        # Of each validation batch, the part of a mixture that it is from; filled by val_dataloader.
        self.valid_parts: list[str | None] = []

    def train_dataloader(self) -> DataLoader:
        """The steps that are left, one batch per optimizer step."""
        trainer: Any = self.trainer
        task = trainer.lightning_module
        rank, world = trainer.global_rank, trainer.world_size
        steps = self.data.steps(task.accumulate, rank, world, start=task.step)
        return self.data.train(steps, trainer.strategy.root_device)

    def val_dataloader(self) -> DataLoader:
        """The validation split, in batches of the size of a micro-batch."""
        trainer: Any = self.trainer
        rank, world = trainer.global_rank, trainer.world_size
        rows = max(1, self.data.rows // (trainer.lightning_module.accumulate * world))
        self.valid_parts = [part for part, _ in self.data.valid_batches(rows, rank, world)]
        return self.data.valid(rows, trainer.strategy.root_device, rank, world)
