"""A schedule: python train.py components=[docs/examples/step_decay.py] schedule=step_decay"""

from xformer_kit.optim import SCHEDULES, Schedule
from xformer_kit.registry import at_least


@SCHEDULES.register("step_decay")
class StepDecay(Schedule):
    """factor = 10^-k in part k of `parts` equal parts of the steps after the warm-up, from 0 (He et
    al., 2016, arXiv:1512.03385, section 3.4).
    """

    def __init__(self, max_steps: int, *, warmup: int | float = 0.05, parts: int = 3):
        super().__init__(max_steps, warmup)
        self.parts = parts

    def decayed(self, progress):
        return 0.1 ** min(int(progress * self.parts), self.parts - 1)

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from at_least(options, parts=1)
