"""Evaluation during training: the likelihood of the validation split, and a sample of the model's
text.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from tasks import Config, Figures, State
from tasks.metrics import SplitLikelihood
from tasks.module import Task
from tasks.run.exit_codes import SignalBox
from tasks.run.seeds import aside, key
from xformer_kit.data import Batch
from xformer_kit.data.training_data import TrainingData


class Sample(NamedTuple):
    """What a model was given and what it generated, as text."""

    given: str
    written: str
    wanted: str = ""  # if there is a right answer

    @property
    def text(self) -> str:
        """A continuation directly after its prompt, an answer on a line of its own."""
        return self.given + "\n" * bool(self.wanted) + self.written


class EvaluatedTask(Task):
    """Adds to a Task the likelihood of the validation split, over all of its tokens and all ranks.

    `validation` holds the last result: loss (nats per token), perplexity, and bits_per_byte if the
    split is a text; of a mixture also those of each part, such as prose/loss. Subclasses add
    `measure` to `validation`, `final` to the summary, and `sample`.
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
        self.validation: Figures = {}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.validation = state["validation"]

    def setup(self, stage: str) -> None:
        device = self.trainer.strategy.root_device
        self.likelihood = SplitLikelihood(self.data.bytes_per_token, self.data.parts(), device)

    def validation_step(self, batch: Batch, index: int) -> None:
        nats, count, _ = self.objective.loss(self.model, batch)
        part = self.trainer.datamodule.valid_parts[index]  # type: ignore[attr-defined]
        self.likelihood.update(part, nats, count)

    def on_validation_epoch_end(self) -> None:
        self.validation = self.likelihood.compute() | self.measure()
        self.likelihood.reset()
        # For a user's callbacks, in trainer.callback_metrics; the loggers have them from Recorder.
        figures = {f"val/{name}": float(value) for name, value in self.validation.items()}
        self.log_dict(figures, logger=False, sync_dist=self.trainer.world_size > 1)

    def measure(self) -> Figures:
        """Figures in addition to the likelihood, equal on all ranks."""
        return {}

    def final(self) -> Figures:
        """Figures of the test split, once at the end, on the first rank."""
        return {}

    def sample(self) -> Sample | None:
        """A sample of the model's text; a function of the weights and the step."""
        return None

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """A context in evaluation mode without gradients. Its random numbers depend on the seed and
        the step only, and those of training are left as they were.
        """
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad(), aside(self.device, key("sample", self.config["seed"], self.step)):
                yield
        finally:
            self.model.train(training)
