"""A schedule: python train.py components=[docs/examples/cooldown.py] schedule=cooldown"""

from xformer_kit.optim import SCHEDULES, Schedule
from xformer_kit.registry import in_range


@SCHEDULES.register("cooldown")
class Cooldown(Schedule):
    """factor = 1 after the warm-up, then 1 - sqrt(p) in the last part of the run, with p the
    fraction of its steps (Hägele et al., 2024, arXiv:2405.18392, eq. 1).
    """

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int = 60,  # optimizer steps
        share: float = 0.2,  # fraction of the run
    ):
        super().__init__(max_steps, warmup, 0.0, max_steps - 1 - max(1, round(share * max_steps)))

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from in_range(options, share=(0, 1))

    def decayed(self, progress):
        return 1 - progress**0.5
