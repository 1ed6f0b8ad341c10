"""How good is the model by now? The likelihood of a whole split, whatever the task, and a sample of
what it says.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import nn

from tasks.metrics import Likelihood
from tasks.module import Task
from tasks.run.exit_codes import SignalBox
from tasks.run.seeds import aside, key
from tasks.training_data import TrainingData
from xformer_kit.data import Batch


class Sample(NamedTuple):
    """What a model was given and what it made of it, as text."""

    given: str
    written: str
    wanted: str = ""  # where there is a right answer

    @property
    def text(self) -> str:
        """A continuation right behind its prompt, an answer on a line of its own."""
        return self.given + "\n" * bool(self.wanted) + self.written


class EvaluatedTask(Task):
    """Adds to a Task the likelihood of the validation split, over all of its tokens and all ranks.

    `validation` holds the last result: loss (nats per token), perplexity, and bits_per_byte where
    the split is a text; of a mixture also those of each part, such as prose/loss. What a kind of
    task adds: `measure` to `validation`, `final` to the summary, and `sample`.
    """

    def __init__(
        self,
        config: dict[str, Any],
        model: nn.Module,
        objective: Any,
        *,
        total_steps: int,
        data: TrainingData,
        signals: SignalBox | None = None,
    ):
        super().__init__(config, model, objective, total_steps=total_steps, signals=signals)
        self.data = data
        self.validation: dict[str, float] = {}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.validation = state["validation"]

    def setup(self, stage: str) -> None:
        device = self.trainer.strategy.root_device
        dtype = torch.float32 if device.type == "mps" else torch.float64  # mps has no fp64
        self.likelihood = Likelihood(self.data.bytes_per_token, dtype).to(device)
        self.by_part = {
            name: Likelihood(size, dtype).to(device) for name, size in self.data.parts().items()
        }

    def validation_step(self, batch: Batch, index: int) -> None:
        nats, count, _ = self.objective.loss(self.model, batch)
        self.likelihood.update(nats, count)
        if self.by_part:
            parts = self.trainer.datamodule.valid_parts  # type: ignore[attr-defined]
            self.by_part[parts[index]].update(nats, count)

    def on_validation_epoch_end(self) -> None:
        self.validation = self.likelihood.compute() | self._of_parts() | self.measure()
        for likelihood in (self.likelihood, *self.by_part.values()):
            likelihood.reset()
        # For a user's callbacks, in trainer.callback_metrics; loggers have them from us.
        figures = {f"val/{name}": float(value) for name, value in self.validation.items()}
        self.log_dict(figures, logger=False, sync_dist=self.trainer.world_size > 1)

    def _of_parts(self) -> dict[str, float]:
        """Figures of each part of a mixture; none of a part that no batch was of."""
        found: dict[str, float] = {}
        for part, likelihood in self.by_part.items():
            likelihood.update(
                likelihood.nats.new_zeros(()), 0
            )  # a rank may have had no batch of it
            figures = likelihood.compute()
            found |= (
                {}
                if math.isnan(figures["loss"])
                else {f"{part}/{name}": v for name, v in figures.items()}
            )
        return found

    def measure(self) -> dict[str, float]:
        """Figures beside the likelihood, equal on all ranks."""
        return {}

    def final(self) -> dict[str, float]:
        """Figures of the test split, once at the end, on the first rank."""
        return {}

    def sample(self) -> Sample | None:
        """What the model says by now; the same for the same weights and step."""
        return None

    def drawn(self) -> Any:
        """A context of evaluation, with draws of its own that leave training as it was."""
        device = next(self.model.parameters()).device
        return _Evaluation(self.model, aside(device, key("sample", self.config["seed"], self.step)))


class _Evaluation:
    """The model in evaluation mode without gradients, beside the training's generators, and
    back.
    """

    def __init__(self, model: nn.Module, generators: Any):
        self.model = model
        self.contexts = (torch.no_grad(), generators)

    def __enter__(self) -> None:
        self.training = self.model.training
        self.model.eval()
        for context in self.contexts:
            context.__enter__()

    def __exit__(self, *error: Any) -> None:
        for context in reversed(self.contexts):
            context.__exit__(*error)
        self.model.train(self.training)
