"""Learning-rate schedules: bounds, warm-up, continuity and ends, over the registry."""

import math
import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.messages import messages
from xformer_kit.optim.schedules import SCHEDULES
from xformer_kit.registry import Context

EVERY = list(SCHEDULES)
ENDING = [name for name in EVERY if "final" in SCHEDULES.options(name)]
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
    assert factors[:warmup] == [(step + 1) / (warmup + 1) for step in range(warmup)]
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


@ending
@given(max_steps=st.integers(2, 60), warmup=st.integers(0, 58), final=st.floats(0, 1))
def test_the_last_step_reaches_final_and_what_follows_stays_there(name, max_steps, warmup, final):
    if warmup >= max_steps - 1:
        return  # the peak is the last step, or the warm-up is shortened
    schedule = SCHEDULES.create(
        {"name": name, "warmup": warmup, "final": final}, max_steps=max_steps
    )
    assert schedule(max_steps - 1) == pytest.approx(final, abs=1e-12)
    assert schedule(max_steps + 100) == schedule(max_steps - 1)


@pytest.mark.extended
@every
@given(warmup=st.integers(0, 500))
def test_a_longer_run_takes_smaller_jumps(name, warmup):
    # Continuity: over 10,000 steps a step moves the factor by no more than the steepest slope of
    # any of them.
    factors = curve(name, 10_000, warmup=1000 + warmup)
    assert max(abs(a - b) for a, b in pairwise(factors)) <= 1 / 999


def test_constant_by_eye():
    assert curve("constant", 5, warmup=1) == [0.5, 1, 1, 1, 1]


def test_linear_by_eye():
    assert curve("linear", 5, warmup=0, final=0.0) == [1, 0.75, 0.5, 0.25, 0]
    assert curve("linear", 6, warmup=1, final=0.5) == [0.5, 1, 0.875, 0.75, 0.625, 0.5]


def test_cosine_by_eye():
    assert curve("cosine", 5, warmup=0, final=0.0) == pytest.approx(
        [1, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0]
    )


def test_wsd_by_eye():
    assert curve("wsd", 10, warmup=1, decay=0.4, final=0.0) == pytest.approx(
        [0.5, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0]
    )


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
    schedule = SCHEDULES.create({"name": "cosine", "warmup": 100, "final": 0.1}, max_steps=2001)
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
            {"name": "linear", "final": 2},
            "schedule.final: must be at most 1; got 2.",
        ),
        (
            {"name": "linear", "final": float("nan")},
            "schedule.final: must be a finite number; got nan. Try 0.0.",
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
            "schedule: no schedule is called 'noam'. Did you mean 'inverse_sqrt'? Known: "
            "constant, cosine, inverse_sqrt, linear, wsd.",
        ),
        (
            {"name": "cosin"},
            (
                "schedule: no schedule is called 'cosin'. Did you mean 'cosine'? "
                "Known: constant, cosine, inverse_sqrt, linear, wsd."
            ),
        ),
        (
            {"name": "constant", "final": 0.1},
            (
                "schedule.final: schedule 'constant' has no option 'final'. "
                "It has: warmup. Try schedule=cosine, schedule=linear or schedule=wsd."
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
