"""What is learned? The loss of a batch, in plain torch.

    needs     the towers that the model must have
    laws      the laws that all its parts must keep: one that names a law in its `breaks` is refused
    cannot    why a composed model cannot be trained on this, or None
    loss      the summed loss of a batch, the number of tokens that it is over, and the model's report

Sums, not means: micro-batches and ranks add up, and whoever steps the optimizer divides by the step's tokens.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from xformer_kit.registry import Context, Registry


class Objective:
    """What every objective answers. `loss` has no default."""

    needs: ClassVar[tuple[str, ...]] = ("decoder",)  # towers
    laws: ClassVar[tuple[str, ...]] = ()  # names of `xformer_kit.laws`

    @classmethod
    def cannot(cls, context: Context) -> str | None:
        """A sentence with the reason and the way out, or None where the composed model can be trained on this."""
        return None

    def loss(self, model: Any, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """(sum in nats: scalar of fp32, number of tokens: scalar, report of the model). `model` is a `model.Model`."""
        raise NotImplementedError


OBJECTIVES = Registry("objective", base=Objective, group="task")

from xformer_kit.objective import language_modeling  # noqa: E402, F401  (its entry; the registry must exist first)
