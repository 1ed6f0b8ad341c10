"""Schedules: the learning rate over a run, as a fraction of `optim.lr`.

A schedule is a pure function of the step: `schedule(step)` is the factor of optimizer step `step`,
counted from 0, so the last step of a run is `max_steps - 1`. Each starts with the same linear
warm-up (Goyal et al., 2017, https://arxiv.org/abs/1706.02677, section 2.2), except one_cycle, whose
own warm-up begins higher. It reaches the peak at step `warmup`:

    factor = (step + 1) / (warmup + 1)    while step < warmup

so no step has a learning rate of zero, and without warm-up the first step is at the peak. A warm-up
is a number of steps, or a share of the run: `warmup=0.05` is a twentieth of it, see `warmup_steps`.
A number of steps as long as the run or longer would never reach the peak: it takes a tenth of the
run. `min` is the lowest factor after the warm-up. Papers count steps from 1; the curves are the
same.

Below, p is the fraction of the steps after the warm-up (or of those of the decay), in (0, 1].
"""

import math
from collections.abc import Callable, Iterator
from typing import Literal

from xformer_kit.registry import (
    Context,
    Fault,
    Options,
    Registry,
    above,
    at_least,
    at_most,
    independent_check,
)
from xformer_kit.registry.messages import in_open_range


def shortened(warmup: int, max_steps: int) -> int:
    """Returns the steps of a warm-up in a run of `max_steps`: a tenth of the run if the warm-up
    would not end before it.
    """
    return warmup if warmup < max_steps else max_steps // 10


def warmup_steps(warmup: int | float, max_steps: int) -> int:
    """Returns the steps of a warm-up in a run of `max_steps`. A float is a share of the run: it is
    rounded to whole steps, and the last step is at the peak. A number of steps is `shortened`.
    """
    if isinstance(warmup, float):
        return min(round(warmup * max_steps), max_steps - 1)
    return shortened(warmup, max_steps)


def half_cosine(progress: float) -> float:
    """Returns (1 + cos(pi p)) / 2, which falls from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * progress))


class Schedule:
    """Base of all schedules: the warm-up, then the peak up to step `start`, then `decayed` from
    `start` to the last step.

    min: lowest factor after the warm-up, reached at the last step. start: that of the decay; None:
    the end of the warm-up.

    Attribute is_cut: whether the decay would begin within the warm-up, and is therefore shorter.
    """

    def __init__(
        self, max_steps: int, warmup: int | float, min: float = 1.0, start: int | None = None
    ):
        self.warmup = warmup_steps(warmup, max_steps)
        self.start = self.warmup if start is None else max(self.warmup, start)
        self.is_cut = start is not None and start + 1 < self.warmup
        self.last = max_steps - 1
        self.min = min

    def __call__(self, step: int) -> float:
        """Returns the factor of `optim.lr` at an optimizer step, counted from 0."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        if step <= self.start:
            return 1.0
        return self.decayed(min(1.0, (step - self.start) / max(1, self.last - self.start)))

    def decayed(self, progress: float) -> float:
        """Returns the factor at `progress` in (0, 1] of the decay, by default linear."""
        return self.above_min(1 - progress)

    def above_min(self, share: float) -> float:
        """Returns min + (1 - min) * share."""
        return self.min + (1 - self.min) * share

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        yield from _warmup_faults(options)
        yield from at_least(options, min=0)
        yield from at_most(options, min=1)


@independent_check
def _warmup_faults(options: Options) -> Iterator[Fault]:
    """Yields the fault of a negative warm-up, and of one that is a share of more than the run."""
    if not isinstance(options.warmup, float):
        yield from at_least(options, "steps", warmup=0)
    elif not 0 <= options.warmup < 1:
        rule = "must be below 1 as a share of the run, and at least 0"
        yield Fault("warmup", rule, options.warmup, "Give a whole number to count steps.")


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
        warmup: int | float = 0,  # optimizer steps, or a share of the run
    ):
        super().__init__(max_steps, warmup)


@SCHEDULES.register(
    "cosine",
    also_called={
        "cosine_with_warmup": {},
        "cosine_annealing": {},
        "cos": {},
        "cosine_with_restarts": {"restarts": 1},
    },
)
class CosineSchedule(Schedule):
    """factor = min + (1 - min) (1 + cos(pi p)) / 2.

    Loshchilov and Hutter, 2017, https://arxiv.org/abs/1608.03983, eq. 5. With `restarts` r, the
    steps after the warm-up are r + 1 equal cycles, each from the peak, without a warm-up of its
    own: p is the fraction of a cycle.
    """

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int | float = 60,  # optimizer steps, or a share of the run
        min: float = 0.1,  # fraction of the peak at the last step
        restarts: int = 0,  # returns to the peak after the first cycle
    ):
        super().__init__(max_steps, warmup, min)
        self.cycles = restarts + 1

    def decayed(self, progress: float) -> float:
        # Rounded, since a product such as 1 / 49 * 49 is below the 1 where a cycle begins.
        cycles = round(progress * self.cycles, 9)
        return self.above_min(half_cosine(1.0 if progress == 1 else cycles % 1))

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        yield from super().check(options, context)
        yield from at_least(options, restarts=0)


@SCHEDULES.register("linear", also_called=("linear_with_warmup",))
class LinearSchedule(Schedule):
    """factor = min + (1 - min) (1 - p).

    Bergsma et al., 2025, https://arxiv.org/abs/2502.15938; they decay to zero, the default here.
    """

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int | float = 60,  # optimizer steps, or a share of the run
        min: float = 0.0,  # fraction of the peak at the last step
    ):
        super().__init__(max_steps, warmup, min)


@SCHEDULES.register("polynomial", also_called=("poly", "polynomial_decay"))
class PolynomialSchedule(Schedule):
    """factor = min + (1 - min) (1 - p)^power.

    Chen et al., 2017, https://arxiv.org/abs/1606.00915, section 4.1, with a power of 0.9. A power
    of 1 is schedule=linear; above 1 the factor falls early and ends flat.
    """

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int | float = 60,  # optimizer steps, or a share of the run
        min: float = 0.0,  # fraction of the peak at the last step
        power: float = 2.0,  # exponent of the remaining share
    ):
        super().__init__(max_steps, warmup, min)
        self.power = power

    def decayed(self, progress: float) -> float:
        return self.above_min((1 - progress) ** self.power)

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        yield from super().check(options, context)
        yield from above(options, "1 is linear.", power=0)


# Shape -> what remains of the decay at p.
SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda p: 1 - p,
    "sqrt": lambda p: 1 - math.sqrt(p),
    "cosine": half_cosine,
}


@SCHEDULES.register("wsd", also_called=("warmup_stable_decay", "trapezoidal"))
class WarmupStableDecay(Schedule):
    """Warm-up, then the peak, then factor = min + (1 - min) shape(p) over the last `decay` of the
    run. shape(p) is 1 - p (linear), 1 - sqrt(p) (sqrt) or (1 + cos(pi p)) / 2 (cosine);
    exponential is factor = min^p.

    Hu et al., 2024, https://arxiv.org/abs/2404.06395, section 4, who decay exponentially; linear
    and sqrt are the cooldowns of Hägele et al., 2024, https://arxiv.org/abs/2405.18392. The stable
    phase does not depend on the length of the run, so one long run can be decayed at several
    lengths.
    """

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int | float = 60,  # optimizer steps, or a share of the run
        decay: float = 0.2,  # fraction of the run, at its end
        min: float = 0.0,  # fraction of the peak at the last step
        shape: Literal["linear", "sqrt", "cosine", "exponential"] = "linear",  # of the decay
    ):
        start = max_steps - 1 - max(1, round(decay * max_steps))
        super().__init__(max_steps, warmup, min, start)
        self.shape = shape

    def decayed(self, progress: float) -> float:
        if self.shape == "exponential":
            return float(self.min**progress)
        return self.above_min(SHAPES[self.shape](progress))

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        yield from super().check(options, context)
        fix = "Try 0.2, or schedule=constant."
        yield from in_open_range(options, fix, closed=True, decay=(0, 1))
        if options.shape == "exponential":
            yield from above(options, "shape=exponential is min^p. Try 0.01.", min=0)


@SCHEDULES.register("inverse_sqrt", also_called=("inverse_square_root", "rsqrt"), similar=("noam",))
class InverseSqrt(Schedule):
    """factor = sqrt((warmup + 1) / (step + 1)) after the warm-up, at least `min`, for any length of
    the run.

    Vaswani et al., 2017, https://arxiv.org/abs/1706.03762, eq. 3, divided by its peak: `optim.lr`
    is the peak here, which is dim^-0.5 warmup^-0.5 in the paper.
    """

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int | float = 60,  # optimizer steps, or a share of the run
        min: float = 0.0,  # lowest fraction of the peak
    ):
        super().__init__(max_steps, warmup, min)

    def __call__(self, step: int) -> float:
        count, peak = step + 1, self.warmup + 1
        return count / peak if count <= peak else max(self.min, math.sqrt(peak / count))


@SCHEDULES.register("one_cycle", also_called=("onecycle", "1cycle"))
class OneCycle(Schedule):
    """factor = 1 - (1 - first) (1 + cos(pi w)) / 2 in the warm-up, with w = step / warmup, then
    factor = min + (1 - min) (1 + cos(pi p)) / 2.

    Smith and Topin, 2018, https://arxiv.org/abs/1708.07120, with the half cosines of
    torch.optim.lr_scheduler.OneCycleLR. The momentum is that of the optimizer, and does not change.
    """

    def __init__(
        self,
        max_steps: int,
        *,
        warmup: int | float = 0.3,  # optimizer steps, or a share of the run
        first: float = 0.04,  # fraction of the peak at the first step
        min: float = 4e-6,  # fraction of the peak at the last step
    ):
        super().__init__(max_steps, warmup, min)
        self.first = first

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return 1 - (1 - self.first) * half_cosine(step / self.warmup)
        return super().__call__(step)

    def decayed(self, progress: float) -> float:
        return self.above_min(half_cosine(progress))

    @classmethod
    def check(cls, options: Options, context: Context) -> Iterator[Fault]:
        yield from super().check(options, context)
        yield from at_least(options, first=0)
        yield from at_most(options, first=1)
