"""Each law of schedules is broken by a faulty schedule."""

import math

from kind_laws import assert_keeps_all, broken_kind_test

from xformer_kit.laws.kinds import KIND_LAWS
from xformer_kit.optim.schedules import Schedule


class BelowZero(Schedule):
    def __init__(self, max_steps: int):
        super().__init__(max_steps, 0)

    def __call__(self, step):
        return 1 - step / 10


class NotANumber(BelowZero):
    """Divides by the number of steps after the first."""

    def __init__(self, max_steps: int):
        super().__init__(max_steps)
        self.steps = max_steps - 1

    def __call__(self, step):
        return 1 - step / self.steps if self.steps else math.nan


class CountsCalls(BelowZero):
    def __init__(self, max_steps: int):
        super().__init__(max_steps)
        self.calls = 0

    def __call__(self, step):
        self.calls += 1
        return 1 / self.calls


class Averages(BelowZero):
    """The mean of the last factor and the next one."""

    last = 1.0

    def __call__(self, step):
        self.last = (self.last + 1 / (step + 1)) / 2
        return self.last


class HalfWave(BelowZero):
    """A good one."""

    def __call__(self, step):
        return math.cos(step / 100) ** 2


ARGUMENTS = [
    ("factor", BelowZero, "the factor of step 11 of 50 is -0.1"),
    ("factor", NotANumber, "the factor of step 0 of 1 is nan"),
    ("function of the step", CountsCalls, "if steps are called in another order"),
    ("function of the step", Averages, "of step 0 of 1 is 0.5, and 0.75 if"),
]

test_a_broken_schedule_is_caught = broken_kind_test("schedule", ARGUMENTS)


def test_every_law_catches_a_broken_schedule():
    assert KIND_LAWS["schedule"].keys() == {law for law, *_ in ARGUMENTS}


def test_a_schedule_keeps_all():
    assert_keeps_all("schedule", HalfWave)
