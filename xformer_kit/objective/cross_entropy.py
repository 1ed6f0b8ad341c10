"""Cross-entropy, with label smoothing and z-loss in training."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from xformer_kit.objective import Batch, Loss, Objective, Predictions
from xformer_kit.registry import at_least, in_range

States = tuple[Tensor, Tensor, dict[str, Tensor]]  # see `CrossEntropy.states`
MAX_LOGITS = 2**24  # numbers in memory at once for metrics, 64 MiB


@dataclass(kw_only=True, eq=False)
class CrossEntropy(Objective):
    """Base: the loss is the cross-entropy of tokens, in training with label smoothing and z-loss.

    label_smoothing e: the target is (1 - e) onehot + e / vocabulary (Szegedy et al., 2016,
    arXiv:1512.00567, section 7). z_loss c: c log^2 Z is added, Z the sum of exp(logits), so that
    log Z stays near 0 (Chowdhery et al., 2022, arXiv:2204.02311, section 5). In evaluation the loss
    is the plain cross-entropy, whose exponential is the perplexity. Subclasses define `states`.
    """

    outputs: ClassVar[tuple[str, ...]] = ("logits",)

    # share of the target distribution that is uniform over the vocabulary, in training
    label_smoothing: float = 0.0
    z_loss: float = 0.0  # coefficient of log^2 Z, in training; PaLM has 1e-4

    @classmethod
    def check(cls, options, context):
        yield from in_range(options, label_smoothing=(0, 1))
        yield from at_least(options, z_loss=0)

    def nats(self, model: Any, hidden: Tensor, target: Tensor, **more: Any) -> Any:
        """Returns the summed loss over targets that are not negative, a scalar of fp32, for hidden
        (b, t, dim) and target (b, t). `more` is passed to the head, e.g. `scale`.
        """
        if model.training and (self.label_smoothing or self.z_loss):
            more |= {"label_smoothing": self.label_smoothing, "z_loss": self.z_loss}
        return model.head(hidden, target, **more)

    def states(self, model: Any, batch: Batch) -> States:
        """Returns (hidden states (..., dim) that the head reads, targets (...), -1 where nothing is
        predicted, and the model's report).
        """
        raise NotImplementedError

    def loss(self, model: Any, batch: Batch) -> Loss:
        hidden, target, report = self.states(model, batch)
        return self._loss(model, (hidden, target, self.mean_over_step(report, batch)))

    def _loss(self, model: Any, states: States) -> Loss:
        hidden, target, report = states
        return self.nats(model, hidden, target), (target >= 0).sum(), report

    def loss_and_predictions(self, model: Any, batch: Batch) -> tuple[Loss, Predictions]:
        states = self.states(model, batch)
        return self._loss(model, states), _predictions(model, *states[:2])


def labelled(hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Returns hidden (b, t, dim) and labels (b, t) where these are not negative, (n, dim) and (n,).
    The head, a large part of a small model, is computed only for these tokens.
    """
    chosen = labels >= 0
    return hidden[chosen], labels[chosen]


def _predictions(model: Any, hidden: Tensor, target: Tensor) -> Predictions:
    """Yields logits and targets in parts of at most MAX_LOGITS numbers."""
    hidden, target = labelled(hidden, target)
    size = max(1, MAX_LOGITS // model.vocab_size)
    for part, right in zip(hidden.split(size), target.split(size), strict=True):
        yield model.head(part[None])[0].float(), right
