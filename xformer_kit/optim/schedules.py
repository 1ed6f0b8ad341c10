"""Schedules: the learning rate over a run, as a fraction of `optim.lr`.

A schedule is a pure function of the step: `schedule(step)` is the factor of optimizer step `step`,
counted from 0, so the last step of a run is `max_steps - 1`. Each starts with the same linear
warm-up (Goyal et al., 2017, https://arxiv.org/abs/1706.02677, section 2.2), which reaches the peak
at step `warmup`:

    factor = (step + 1) / (warmup + 1)    while step < warmup

so no step has a learning rate of zero, and without warm-up the first step is at the peak. A warm-up
as long as the run or longer would never reach the peak: it takes a tenth of the run, see
`shortened`. Papers count steps from 1; the curves are the same.
"""

import math
from collections.abc import Iterator

from xformer_kit.registry import Context, Fault, Options, Registry, at_least, at_most
from xformer_kit.registry.messages import in_open_range


def shortened(warmup: int, max_steps: int) -> int:
    """Returns the steps of a warm-up in a run of `max_steps`: a tenth of the run if the warm-up
    would not end before it.
    """
    return warmup if warmup < max_steps else max_steps // 10


class Schedule:
    """Base of all schedules: the warm-up, then the peak up to step `start`, then `decayed` from
    `start` to the last step.

    final: factor at the last step.
    """

    def __init__(self, max_steps: int, warmup: int, final: float = 1.0, start: int = 0):
        self.warmup = shortened(warmup, max_steps)
        self.start = max(self.warmup, start)
        self.last = max_steps - 1
        self.final = final

    def __call__(self, step: int) -> float:
        """Returns the factor of `optim.lr` at an optimizer step, counted from 0."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        if step <= self.start:
            return 1.0
        return self.decayed(min(1.0, (step - self.start) / max(1, self.last - self.start)))

    def decayed(self, progress: float) -> float:
        """Returns the factor at `progress` in (0, 1] of the decay, by default linear."""
        return 1 - (1 - self.final) * progress

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        yield from at_least(options, "steps", warmup=0)
        yield from at_least(options, final=0)
        yield from at_most(options, final=1)


class ScheduleArguments:
    """What a run passes to the constructor of a schedule."""

    max_steps: int  # optimizer steps of the run


SCHEDULES = Registry("schedule", caller_arguments=ScheduleArguments, base=Schedule)


@SCHEDULES.register("constant", also_called=("constant_with_warmup", "none", "flat"))
class ConstantSchedule(Schedule):
    """factor = 1 after the warm-up."""

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int = 0,  # optimizer steps
    ):
        super().__init__(max_steps, warmup)


@SCHEDULES.register(
    "cosine",
    also_called=("cosine_with_warmup", "cosine_annealing", "cos"),
)
class CosineSchedule(Schedule):
    """factor = final + (1 - final) (1 + cos(pi p)) / 2, with p the fraction of the steps after the
    warm-up.

    Loshchilov and Hutter, 2017, https://arxiv.org/abs/1608.03983, eq. 5, without restarts.
    """

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int = 60,  # optimizer steps
        final: float = 0.1,  # fraction of the peak at the last step
    ):
        super().__init__(max_steps, warmup, final)

    def decayed(self, progress: float) -> float:
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * progress))


@SCHEDULES.register("linear", also_called=("linear_with_warmup",))
class LinearSchedule(Schedule):
    """factor = 1 - (1 - final) p, with p the fraction of the steps after the
    warm-up.

    Bergsma et al., 2025, https://arxiv.org/abs/2502.15938; they decay to zero, the default here.
    """

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int = 60,  # optimizer steps
        final: float = 0.0,  # fraction of the peak at the last step
    ):
        super().__init__(max_steps, warmup, final)


@SCHEDULES.register("wsd", also_called=("warmup_stable_decay", "trapezoidal"))
class WarmupStableDecay(Schedule):
    """Warm-up, then the peak, then factor = 1 - (1 - final) p over the last `decay` of the run.

    Hu et al., 2024, https://arxiv.org/abs/2404.06395, section 4. They decay exponentially; here it
    is linear, as in the cooldown of Hägele et al., 2024, https://arxiv.org/abs/2405.18392. The
    stable phase does not depend on the length of the run, so one long run can be decayed at several
    lengths.
    """

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int = 60,  # optimizer steps
        decay: float = 0.2,  # fraction of the run, at its end
        final: float = 0.0,  # fraction of the peak at the last step
    ):
        start = max_steps - 1 - max(1, round(decay * max_steps))
        super().__init__(max_steps, warmup, final, start)

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        yield from super().check(options, context)
        fix = "Try 0.2, or schedule=constant."
        yield from in_open_range(options, fix, closed=True, decay=(0, 1))


@SCHEDULES.register("inverse_sqrt", also_called=("inverse_square_root", "rsqrt"), similar=("noam",))
class InverseSqrt(Schedule):
    """factor = sqrt((warmup + 1) / (step + 1)) after the warm-up, for any length of the run.

    Vaswani et al., 2017, https://arxiv.org/abs/1706.03762, eq. 3, divided by its peak: `optim.lr`
    is the peak here, which is dim^-0.5 warmup^-0.5 in the paper.
    """

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int = 60,  # optimizer steps
    ):
        super().__init__(max_steps, warmup)

    def __call__(self, step: int) -> float:
        count, peak = step + 1, self.warmup + 1
        return min(count / peak, math.sqrt(peak / count))
