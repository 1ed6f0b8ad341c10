"""A mask: python train.py components=[docs/examples/every.py] mask=every mask.step=3"""

from dataclasses import dataclass

from xformer_kit.mask import MASKS, Mask
from xformer_kit.registry import at_least


@MASKS.register("every", also_called=("skip",))
@dataclass(frozen=True)
class Every(Mask):
    """Each token attends to itself and every `step`-th token before it (Beltagy et al., 2020,
    arXiv:2004.05150, section 3.1).
    """

    step: int = 2  # distance between visible tokens
    sees_future = False

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", step=1)

    def allows(self, query, key, head):
        distance = query.slot - key.slot
        return (distance >= 0) & (distance % self.step == 0)
