"""Cross-entropy, with two terms that are added in training."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from xformer_kit.objective import Objective
from xformer_kit.registry import at_least, within


@dataclass(kw_only=True, eq=False)
class CrossEntropy(Objective):
    """Base: the loss is the cross-entropy of tokens, in training with two more terms.

    label_smoothing e: the target is (1 - e) onehot + e / vocabulary (Szegedy et al., 2016,
    arXiv:1512.00567, section 7). z_loss c: c log^2 Z is added, Z the sum of exp(logits), so that
    log Z stays near 0 (Chowdhery et al., 2022, arXiv:2204.02311, section 5). In evaluation the loss
    is the plain cross-entropy, of which a perplexity is made.
    """

    # share of the target that is spread over the vocabulary, in training
    label_smoothing: float = 0.0
    z_loss: float = 0.0  # coefficient of log^2 Z, in training; PaLM has 1e-4

    @classmethod
    def check(cls, options, context):
        yield from within(options, label_smoothing=(0, 1))
        yield from at_least(options, z_loss=0)

    def nats(self, model: Any, hidden: Tensor, target: Tensor, **more: Any) -> Any:
        """The sum over targets that are not negative, hidden (b, t, dim) and target (b, t): a
        scalar of fp32. `more` is for the head: see there of a `scale`.
        """
        if model.training and (self.label_smoothing or self.z_loss):
            more |= {"label_smoothing": self.label_smoothing, "z_loss": self.z_loss}
        return model.head(hidden, target, **more)

    def asked(self, model: Any, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """`nats` of hidden (b, t, dim) where labels (b, t) are not negative, and how many those
        are: the head, a large part of a small model, is computed for them alone.
        """
        asked = labels >= 0
        return self.nats(model, hidden[asked], labels[asked]), asked.sum()
