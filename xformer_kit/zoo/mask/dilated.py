"""Every step-th token."""

from dataclasses import dataclass

from xformer_kit.mask import INF, MASKS, Sparse
from xformer_kit.registry import at_least


@MASKS.register("dilated", also_called=("dilated_window", "dilated_sliding_window"))
@dataclass(frozen=True)
class Dilated(Sparse):
    """Each token attends to itself and every `step`-th token before it, `window` tokens in all: to
    distances that `step` divides (Beltagy et al., 2020, arXiv:2004.05150, section 3.1).
    """

    step: int = 2  # distance between visible tokens
    # visible tokens on each side, including the query's own; null is all
    window: int | None = None

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", step=1, window=1)

    def pattern(self, query, key, head):
        distance = query.slot - key.slot
        seen = distance % self.step == 0
        return seen if self.window is None else seen & (distance.abs() < self.window * self.step)

    def band(self):
        if self.step > 1:
            return None
        left = INF if self.window is None else self.window - 1
        return left, 0 if self.causal else left
