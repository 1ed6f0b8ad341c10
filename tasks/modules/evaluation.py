"""The Lightning module of evaluation: the likelihood of the validation split, further metrics, and
a text that the model generates.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch

from tasks import Metrics
from tasks.generation.decoding import batch_to_device
from tasks.modules.configured_metrics import create_metrics
from tasks.modules.module import Task
from tasks.modules.split_metrics import SplitMetrics
from tasks.process.seeds import derive_seed, temporary_seed
from xformer_kit.checkpoint import Checkpoint
from xformer_kit.data import Batch
from xformer_kit.data.preparation.training_data import TrainingData
from xformer_kit.metrics import of_split
from xformer_kit.model.sharding import reshard
from xformer_kit.objective import summed_loss
from xformer_kit.tensors.uncompiled import uncompiled

BATCH_SIZE = 64  # examples in a batch of the test split


class Sample(NamedTuple):
    """A prompt and what the model generated from it, as text."""

    prompt: str
    generated: str
    expected: str = ""  # the right answer, if there is one

    @property
    def text(self) -> str:
        """A continuation directly after its prompt; an answer on the next line."""
        return self.prompt + "\n" * bool(self.expected) + self.generated


class EvaluatedTask(Task):
    """A task that computes the likelihood of the validation split, over all tokens and all ranks.

    `validation` holds the metrics of the last validation: loss (nats per token), perplexity,
    bits_per_byte if the split is a text, and those that the config names; for a mixture also the
    likelihood of each part, such as prose/loss.
    Subclasses override `validation_metrics`, `test_metrics` and `sample`.
    """

    def __init__(self, *arguments: Any, data: TrainingData, **options: Any):
        super().__init__(*arguments, **options)
        self.data = data
        self.validation: Metrics = {}

    def restore(self, checkpoint: Checkpoint) -> None:
        super().restore(checkpoint)
        self.validation = checkpoint.validation

    def setup(self, stage: str) -> None:
        super().setup(stage)
        device = self.trainer.strategy.root_device
        self.split_metrics = SplitMetrics(
            self.data.bytes_per_token,
            self.data.part_bytes_per_token(),
            device,
            self._metrics_of_predictions(device),
            self.objective.loss_unit,
        )

    def _metrics_of_predictions(self, device: Any, synced: bool = True) -> dict[str, Any]:
        """The configured metrics of predictions and targets."""
        classes = self.objective.num_classes(self.model)
        return create_metrics(self.config, classes, device, synced=synced)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Adds a batch to the metrics of the split and of the batch's part of a mixture.

        A shorter batch at the end of a part is not compiled: its own graphs take longer than it.
        """
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        with uncompiled() if batch_idx in data.short_batches else nullcontext():
            if batch_idx < len(data.valid_parts):
                self.split_metrics.evaluate(
                    self.objective, self.model, batch, data.valid_parts[batch_idx]
                )
            else:  # a rank with fewer batches than others, which need it if the model is sharded
                summed_loss(self.objective, self.model, batch)

    def on_validation_epoch_end(self) -> None:
        """Sets `validation` and trainer.callback_metrics."""
        self.validation = self.split_metrics.compute() | self.validation_metrics()
        self.split_metrics.reset()
        reshard(self.model)
        # trainer.callback_metrics, for users' callbacks; Recorder passes metrics to the loggers
        metrics = {name: float(value) for name, value in of_split(self.validation).items()}
        self.log_dict(metrics, logger=False, sync_dist=self.trainer.world_size > 1)

    def validation_metrics(self) -> Metrics:
        """Validation metrics in addition to the likelihood, equal on all ranks."""
        return {}

    def test_metrics(self) -> Metrics:
        """Metrics of the test split, computed once at the end of a run, on the first rank, and of a
        sharded model on all: those that the config names; {} without a test split.
        """
        metrics = self._metrics_of_predictions(self.device, synced=False)
        if not metrics or self.data.prepared.test is None:
            return {}
        split = SplitMetrics(None, {}, self.device, metrics, self.objective.loss_unit)
        examples = self.data.examples("test")
        with self.sampling():
            for start in range(0, len(examples), BATCH_SIZE):
                rows = range(start, min(start + BATCH_SIZE, len(examples)))
                batch = batch_to_device(self.device, [examples[i] for i in rows])
                split.evaluate(self.objective, self.model, batch, None)
        return {name: value for name, value in split.compute().items() if name in metrics}

    def sample(self) -> Sample | None:
        """A text that the model generates, None if the task has none; a function of the weights,
        the seed and the step.
        """
        return None

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """A context in evaluation mode, without gradients and without compilation: generation has
        other sizes than training, and at the end of a run another device. Random numbers in it
        depend only on the seed and the step; the generators of training are restored after it.
        """
        training = self.model.training
        self.model.eval()
        try:
            with (
                torch.no_grad(),
                uncompiled(),
                temporary_seed(self.device, derive_seed("sample", self.config["seed"], self.step)),
            ):
                yield
        finally:
            reshard(self.model)
            self.model.train(training)
