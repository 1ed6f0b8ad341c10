"""Learning-rate schedules: bounds, warm-up, continuity and ends, over the registry."""

import math
import pickle
from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from tests.messages import messages
from xformer_kit.optim.schedules import SCHEDULES
from xformer_kit.registry import Context

EVERY = list(SCHEDULES)
# Those that end at `min`; inverse_sqrt may end above it.
ENDING = [n for n in EVERY if "min" in SCHEDULES.options(n) and n != "inverse_sqrt"]
KNOWN = "constant, cosine, inverse_sqrt, linear, one_cycle, polynomial, wsd"
every = pytest.mark.parametrize("name", EVERY)
ending = pytest.mark.parametrize("name", ENDING)


def curve(name, max_steps, **options):
    schedule = SCHEDULES.create({"name": name, **options}, max_steps=max_steps)
    return [schedule(step) for step in range(max_steps)]


@every
@given(max_steps=st.integers(1, 60), warmup=st.integers(0, 90))
def test_a_factor_lies_from_zero_to_one_and_warms_up_on_a_line_to_the_peak(name, max_steps, warmup):
    factors = curve(name, max_steps, warmup=warmup)
    assert all(0 <= f <= 1 for f in factors)
    warmup = warmup if warmup < max_steps else max_steps // 10
    line = [(step + 1) / (warmup + 1) for step in range(warmup)]
    assert name == "one_cycle" or factors[:warmup] == line
    assert factors[warmup] == 1
    assert all(b <= a + 1e-12 for a, b in pairwise(factors[warmup:]))


@every
def test_without_warm_up_the_first_step_is_at_the_peak(name):
    assert curve(name, 7, warmup=0)[0] == curve(name, 1, warmup=0)[0] == 1


@every
@pytest.mark.parametrize("warmup", [20, 30])
def test_a_warm_up_that_would_not_end_before_the_run_takes_a_tenth_of_it(name, warmup):
    assert curve(name, 20, warmup=warmup) == curve(name, 20, warmup=2)
    assert curve(name, 20, warmup=19)[-1] == 1


@every
@given(max_steps=st.integers(1, 60), share=st.floats(0, 0.999))
def test_a_share_is_a_warm_up_of_as_many_steps(name, max_steps, share):
    steps = min(round(share * max_steps), max_steps - 1)  # the last step is at the peak at latest
    assert curve(name, max_steps, warmup=share) == curve(name, max_steps, warmup=steps)
    assert max(curve(name, max_steps, warmup=share)) == 1


def test_a_share_of_a_run_by_eye():
    assert curve("constant", 40, warmup=0.05) == [1 / 3, 2 / 3, *[1] * 38]


@ending
@given(max_steps=st.integers(2, 60), warmup=st.integers(0, 58), least=st.floats(0, 1))
def test_the_last_step_reaches_min_and_what_follows_stays_there(name, max_steps, warmup, least):
    if warmup >= max_steps - 1:
        return  # the peak is the last step, or the warm-up is shortened
    schedule = SCHEDULES.create({"name": name, "warmup": warmup, "min": least}, max_steps=max_steps)
    assert schedule(max_steps - 1) == pytest.approx(least, abs=1e-12)
    assert schedule(max_steps + 100) == schedule(max_steps - 1)


@given(least=st.floats(0, 1))
def test_inverse_sqrt_never_falls_below_min(least):
    free, bounded = (curve("inverse_sqrt", 200, warmup=3, min=x) for x in (0, least))
    assert bounded == free[:3] + [max(least, factor) for factor in free[3:]]


@pytest.mark.extended
@every
@given(warmup=st.integers(0, 500))
def test_a_longer_run_takes_smaller_jumps(name, warmup):
    # Continuity: over 10,000 steps a step moves the factor by no more than the steepest slope of
    # any of them.
    factors = curve(name, 10_000, warmup=1000 + warmup)
    steepest = math.pi / 2 if name == "one_cycle" else 1  # of the warm-up, per its length
    assert max(abs(a - b) for a, b in pairwise(factors)) <= steepest / 999


def test_constant_by_eye():
    assert curve("constant", 5, warmup=1) == [0.5, 1, 1, 1, 1]


def test_linear_by_eye():
    assert curve("linear", 5, warmup=0, min=0.0) == [1, 0.75, 0.5, 0.25, 0]
    assert curve("linear", 6, warmup=1, min=0.5) == [0.5, 1, 0.875, 0.75, 0.625, 0.5]


def test_cosine_by_eye():
    assert curve("cosine", 5, warmup=0, min=0.0) == pytest.approx(
        [1, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0]
    )


def test_wsd_by_eye():
    assert curve("wsd", 10, warmup=1, decay=0.4, min=0.0) == pytest.approx(
        [0.5, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0]
    )


def of_torch(scheduler, max_steps, **options):
    """The factors of one of torch's schedulers."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    schedule = scheduler(optimizer, **options)
    factors = []
    for _ in range(max_steps):
        factors.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return factors


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_polynomial_is_that_of_torch(power):
    expected = of_torch(lr_scheduler.PolynomialLR, 20, total_iters=20, power=power)
    assert curve("polynomial", 21, warmup=0, power=power) == pytest.approx([*expected, 0])


@pytest.mark.parametrize("restarts", [0, 2])
def test_cosine_with_restarts_is_that_of_torch(restarts):
    """The last step is the end of a cycle, at which torch begins another one."""
    length = 30 // (restarts + 1)  # of a cycle, in steps
    scheduler = lr_scheduler.CosineAnnealingWarmRestarts
    expected = of_torch(scheduler, 30, T_0=length, eta_min=0.2)
    found = curve("cosine", 31, warmup=0, min=0.2, restarts=restarts)
    assert found == pytest.approx([*expected, 0.2])


@given(last=st.integers(1, 60), restarts=st.integers(0, 9))
@example(last=3, restarts=48)  # 1 / 49 * 49 is below 1
def test_each_cycle_begins_at_the_peak(last, restarts):
    factors = curve("cosine", last * (restarts + 1) + 1, warmup=0, restarts=restarts)
    assert [factors[last * cycle] for cycle in range(restarts + 1)] == [1] * (restarts + 1)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_one_cycle_is_that_of_torch(share):
    """The peak is at step share * max_steps; at that of torch, minus 1."""
    options = {"max_lr": 1.0, "total_steps": 100, "pct_start": share + 0.01}
    expected = of_torch(lr_scheduler.OneCycleLR, 100, **options, cycle_momentum=False)
    assert curve("one_cycle", 100, warmup=share) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("shape", "remaining"),
    [
        ("linear", lambda p: 1 - p),
        ("sqrt", lambda p: 1 - p**0.5),
        ("cosine", lambda p: math.cos(math.pi * p / 2) ** 2),
        ("exponential", lambda p: (0.1**p - 0.1) / 0.9),
    ],
)
def test_shapes_of_the_decay_of_wsd(shape, remaining):
    factors = curve("wsd", 101, warmup=0, decay=0.4, min=0.1, shape=shape)
    assert factors[:61] == [1] * 61
    decayed = [0.1 + 0.9 * remaining(step / 40) for step in range(1, 41)]
    assert factors[61:] == pytest.approx(decayed)


def test_the_stable_component_of_wsd_does_not_depend_on_the_length():
    short, long = curve("wsd", 50, warmup=5, decay=0.2), curve("wsd", 500, warmup=5, decay=0.2)
    assert short[:40] == long[:40]


def test_inverse_sqrt_is_the_published_curve_over_its_peak():
    dim, warmup = 512, 4000

    def published(step):  # Vaswani et al., 2017, eq. 3; steps from 1
        return dim**-0.5 * min(step**-0.5, step * warmup**-1.5)

    schedule = SCHEDULES.create({"name": "inverse_sqrt", "warmup": warmup - 1}, max_steps=100_000)
    for step in (1, 1999, 4000, 4001, 100_000):
        assert schedule(step - 1) == pytest.approx(published(step) / published(warmup))


def test_the_recipe_of_nanogpt():
    # 1e-3 to 1e-4 on a cosine over 2,000 steps with a warm-up of 100; its own formula, whose last
    # step is step 2,000.
    schedule = SCHEDULES.create({"name": "cosine", "warmup": 100, "min": 0.1}, max_steps=2001)
    for step in (0, 50, 99, 100, 1050, 2000):
        share = (step - 100) / (2000 - 100)
        published = (
            1e-3 * (step + 1) / 101
            if step < 100
            else 1e-4 + 0.5 * (1 + math.cos(math.pi * share)) * 9e-4
        )
        assert 1e-3 * schedule(step) == pytest.approx(published)


@every
def test_a_schedule_travels_to_a_worker(name):
    schedule = SCHEDULES.create(SCHEDULES.defaults(name), max_steps=300)
    assert [pickle.loads(pickle.dumps(schedule))(s) for s in (0, 150, 299)] == [
        schedule(s) for s in (0, 150, 299)
    ]


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        ({"name": "cosine", "warmup": -1}, "schedule.warmup: must be at least 0 steps; got -1."),
        (
            {"name": "linear", "min": 2},
            "schedule.min: must be at most 1; got 2.",
        ),
        (
            {"name": "linear", "min": float("nan")},
            "schedule.min: must be a finite number; got nan. Try 0.0.",
        ),
        (
            {"name": "wsd", "decay": 0.0},
            (
                "schedule.decay: must be above 0 and at most 1; got 0.0. "
                "Try 0.2, or schedule=constant."
            ),
        ),
        (
            {"name": "noam"},
            f"schedule: no schedule is called 'noam'. Did you mean 'inverse_sqrt'? Known: {KNOWN}.",
        ),
        (
            {"name": "cosin"},
            f"schedule: no schedule is called 'cosin'. Did you mean 'cosine'? Known: {KNOWN}.",
        ),
        (
            {"name": "cosine", "final": 0.1},
            "schedule.final: is called schedule.min here; got 0.1. Try schedule.min=0.1.",
        ),
        (
            {"name": "linear", "warmup": 1.2},
            (
                "schedule.warmup: must be below 1 as a share of the run, and at least 0; got 1.2. "
                "Give a whole number to count steps."
            ),
        ),
        (
            {"name": "wsd", "shape": "exponential"},
            "schedule.min: must be above 0; got 0.0. shape=exponential is min^p. Try 0.01.",
        ),
        ({"name": "cosine", "restarts": -1}, "schedule.restarts: must be at least 0; got -1."),
        (
            {"name": "polynomial", "power": 0.0},
            "schedule.power: must be above 0; got 0.0. 1 is linear.",
        ),
        (
            {"name": "constant", "power": 2.0},
            (
                "schedule.power: schedule 'constant' has no option 'power'. "
                "It has: warmup. Try schedule=polynomial."
            ),
        ),
    ],
)
def test_faults(node, fault):
    assert messages(SCHEDULES.faults(node, "schedule", Context())) == [fault]


@every
def test_the_defaults_are_sound(name):
    assert not messages(SCHEDULES.faults(SCHEDULES.defaults(name), "schedule", Context()))
    assert all(option.meaning for option in SCHEDULES.options(name).values())
