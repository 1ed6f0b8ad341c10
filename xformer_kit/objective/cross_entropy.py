"""Cross-entropy, with label smoothing and z-loss in training."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from xformer_kit.objective import Objective
from xformer_kit.registry import at_least, in_range


@dataclass(kw_only=True, eq=False)
class CrossEntropy(Objective):
    """Base: the loss is the cross-entropy of tokens, in training with label smoothing and z-loss.

    label_smoothing e: the target is (1 - e) onehot + e / vocabulary (Szegedy et al., 2016,
    arXiv:1512.00567, section 7). z_loss c: c log^2 Z is added, Z the sum of exp(logits), so that
    log Z stays near 0 (Chowdhery et al., 2022, arXiv:2204.02311, section 5). In evaluation the loss
    is the plain cross-entropy, whose exponential is the perplexity.
    """

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

    def labelled_nats(self, model: Any, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Returns `nats` of hidden (b, t, dim) where labels (b, t) are not negative, and their
        number. The head, a large part of a small model, is computed only for these tokens.
        """
        labelled = labels >= 0
        return self.nats(model, hidden[labelled], labels[labelled]), labelled.sum()
