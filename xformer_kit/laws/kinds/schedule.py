"""Laws of schedules."""

import math
import random
from collections.abc import Iterable

from xformer_kit.laws.kinds.registry import Component, law_of

LENGTHS = 1, 2, 50  # optimizer steps of a run


@law_of("schedule", "factor")
def factor(component: Component) -> None:
    """The factor of each step is a finite number of at least 0, also in a run of one step.

    Fails: the factor of step 49 of 50 is -0.1.
    Fix: Clip the factor at 0, and divide by no length that may be 0.
    """
    for length in LENGTHS:
        for step, value in _factors(component, length, range(length)).items():
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise component.broken(f"the factor of step {step} of {length} is {value}")


@law_of("schedule", "function of the step")
def function_of_the_step(component: Component) -> None:
    """The factor depends only on the step: it is the same in any order of calls, at a second call,
    and of a new schedule, as after a resume.

    Fails: the factor of step 0 of 1 is 0.5, and 0.75 if steps are called in another order.
    Fix: Compute the factor from `step` and the options only, and keep no state between two
        calls.
    """
    for length in LENGTHS:
        expected = _factors(component, length, range(length))
        steps = random.Random(0).sample(range(length), length)
        again = _factors(component, length, [*steps, *steps])
        for step, value in expected.items():
            alone = _factors(component, length, [step])[step]
            for other, when in ((again[step], "in another order"), (alone, "without those before")):
                if other != value:
                    raise component.broken(
                        f"the factor of step {step} of {length} is {value}, and {other} if steps"
                        f" are called {when}"
                    )


def _factors(component: Component, length: int, steps: Iterable[int]) -> dict[int, float]:
    """Returns the factors of steps, called in this order; of several calls, the last one."""
    schedule = component.create(max_steps=length)
    return {step: schedule(step) for step in steps}
