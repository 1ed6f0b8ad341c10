"""The Lightning data module of a run."""

from typing import Any

import lightning.pytorch as pl
from torch.utils.data import DataLoader

from tasks.process.ranks import DataRank
from xformer_kit.data.preparation.training_data import TrainingData


class DataModule(pl.LightningDataModule):
    """The training and validation loaders of a prepared corpus."""

    def __init__(self, data: TrainingData):
        super().__init__()
        self.data = data
        # The part of a mixture that each validation batch is from; set in val_dataloader.
        self.valid_parts: list[str | None] = []
        # Numbers of the validation batches that end a part and are shorter than the others.
        self.short_batches: set[int] = set()

    def train_dataloader(self) -> DataLoader:
        """One batch per optimizer step, from the task's current step on."""
        trainer: Any = self.trainer
        task = trainer.lightning_module
        rank, world = DataRank.of(trainer)
        sampler = self.data.step_sampler(task.accumulate, rank, world, start=task.step)
        return self.data.loader("train", sampler, trainer.strategy.root_device)

    def val_dataloader(self) -> DataLoader:
        """The validation split, in batches of a micro-batch's size."""
        trainer: Any = self.trainer
        rank, world = DataRank.of(trainer)
        rows = max(1, self.data.rows // (trainer.lightning_module.accumulate * world))
        batches = self.data.valid_batches(rows, rank, world)
        self.valid_parts = parts = [part for part, _ in batches]
        self.short_batches = {
            i
            for i, (part, batch) in enumerate(batches)
            if len(batch) < rows and parts[i + 1 : i + 2] != [part]
        }
        return self.data.valid_loader(rows, trainer.strategy.root_device, rank, world)
