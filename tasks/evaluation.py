"""The Lightning module of evaluation: the likelihood of the validation split, further metrics, and
a text that the model generates.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from tasks import Config, Metrics, State
from tasks.metrics import SplitLikelihood
from tasks.module import Task
from tasks.run.exit_codes import SignalBox
from tasks.run.seeds import derive_seed, temporary_seed
from xformer_kit.data import Batch
from xformer_kit.data.training_data import TrainingData


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

    `validation` holds the metrics of the last validation: loss (nats per token), perplexity, and
    bits_per_byte if the split is a text; for a mixture also those of each part, such as prose/loss.
    Subclasses override `validation_metrics`, `test_metrics` and `sample`.
    """

    def __init__(
        self,
        config: Config,
        model: nn.Module,
        objective: Any,
        *,
        total_steps: int,
        data: TrainingData,
        signals: SignalBox | None = None,
    ):
        super().__init__(config, model, objective, total_steps=total_steps, signals=signals)
        self.data = data
        self.validation: Metrics = {}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.validation = state["validation"]

    def setup(self, stage: str) -> None:
        device = self.trainer.strategy.root_device
        self.likelihood = SplitLikelihood(
            self.data.bytes_per_token, self.data.part_bytes_per_token(), device
        )

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Adds a batch to the likelihood of the split and of the batch's part of a mixture."""
        nats, count, _ = self.objective.loss(self.model, batch)
        part = self.trainer.datamodule.valid_parts[batch_idx]  # type: ignore[attr-defined]
        self.likelihood.update(part, nats, count)

    def on_validation_epoch_end(self) -> None:
        """Sets `validation` and trainer.callback_metrics."""
        self.validation = self.likelihood.compute() | self.validation_metrics()
        self.likelihood.reset()
        # trainer.callback_metrics, for users' callbacks; Recorder passes metrics to the loggers
        metrics = {f"val/{name}": float(value) for name, value in self.validation.items()}
        self.log_dict(metrics, logger=False, sync_dist=self.trainer.world_size > 1)

    def validation_metrics(self) -> Metrics:
        """Validation metrics in addition to the likelihood, equal on all ranks."""
        return {}

    def test_metrics(self) -> Metrics:
        """Metrics of the test split, computed once at the end of a run, on the first rank."""
        return {}

    def sample(self) -> Sample | None:
        """A text that the model generates, None if the task has none; a function of the weights,
        the seed and the step.
        """
        return None

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """A context in evaluation mode and without gradients. Random numbers in it depend only on
        the seed and the step; the generators of training are restored after it.
        """
        training = self.model.training
        self.model.eval()
        try:
            with (
                torch.no_grad(),
                temporary_seed(self.device, derive_seed("sample", self.config["seed"], self.step)),
            ):
                yield
        finally:
            self.model.train(training)
