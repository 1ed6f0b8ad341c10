"""The order of examples is a function of (seed, epoch, position), for any number of devices and
micro-batches.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from xformer_kit.data.order import GlobalBatches, example_at, example_generator, micro_batch_size
from xformer_kit.registry import ConfigError

SEEDS = st.integers(-(2**70), 2**70)


@given(seed=SEEDS, epoch=st.integers(0, 10**6), n=st.integers(1, 700))
def test_an_epoch_is_a_permutation(seed, epoch, n):
    order = example_at(seed, epoch, np.arange(n), n)
    assert sorted(order.tolist()) == list(range(n))
    assert example_at(seed, epoch, n - 1, n) == order[-1]


@given(n=st.integers(2**31, 2**60), i=st.integers(0, 2**31 - 1))
def test_a_position_of_a_huge_corpus_needs_no_table(n, i):
    assert 0 <= example_at(0, 0, i, n) < n


def test_orders_differ_by_seed_and_epoch_and_look_random():
    n = 1000
    orders = [example_at(seed, epoch, np.arange(n), n) for seed in range(3) for epoch in range(3)]
    for k, order in enumerate(orders):
        for other in [np.arange(n), *orders[:k]]:
            assert (order == other).sum() < 12  # of 1000, one is expected
            assert abs(np.corrcoef(order, other)[0, 1]) < 0.15


@pytest.mark.extended
@pytest.mark.parametrize("n", [2, 5, 11])
def test_every_example_is_at_every_position_equally_often(n):
    epochs, count = 500, np.zeros((n, n))
    for epoch in range(epochs):
        count[np.arange(n), example_at(1, epoch, np.arange(n), n)] += 1
    chi2 = ((count - epochs / n) ** 2 / (epochs / n)).sum()
    freedom = (n - 1) ** 2
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5


@given(
    world=st.sampled_from([1, 2, 3]),
    accumulate=st.sampled_from([1, 2, 4]),
    step=st.integers(0, 30),
    seed=SEEDS,
)
def test_every_layout_takes_the_same_global_batch(world, accumulate, step, seed):
    batches = GlobalBatches(100, 24, seed)
    parts = [
        batches.micro_batch(step, m, accumulate, r, world)
        for m in range(accumulate)
        for r in range(world)
    ]
    assert [i for part in parts for i in part] == GlobalBatches(100, 24, seed)[step].tolist()
    assert {len(part) for part in parts} == {24 // accumulate // world}


def test_an_epoch_shows_each_example_once_and_drops_the_rest():
    batches = GlobalBatches(103, 10, seed=5)
    assert (batches.steps_per_epoch, batches.dropped) == (10, 3)
    for epoch in range(3):
        steps = range(10 * epoch, 10 * epoch + 10)
        assert {batches.epoch(step) for step in steps} == {epoch}
        seen = np.concatenate([batches[step] for step in steps])
        assert seen.tolist() == example_at(5, epoch, np.arange(100), 103).tolist()


def test_steps_can_be_computed_in_any_order():
    batches = GlobalBatches(50_000, 16, seed=0)
    ahead = {step: batches[step].tolist() for step in (9000, 0, 3124, 3125, 255, 256, 9000)}
    for step, expected in ahead.items():
        assert GlobalBatches(50_000, 16, seed=0)[step].tolist() == expected


def test_generators_of_examples_are_independent():
    def draw(*key):
        return torch.rand(3, generator=example_generator(*key)).tolist()

    assert draw(1, 2, 3) == draw(1, 2, 3)
    keys = [(1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (12, 3, 4), (1, 23, 4)]
    assert len({tuple(draw(*key)) for key in keys}) == len(keys)


def test_batches_that_do_not_split_are_an_error():
    with pytest.raises(ConfigError) as error:
        GlobalBatches(12, 64, seed=0)
    assert (
        str(error.value)
        == "data.batch_size: must be at most the 12 examples of the training data; got 64. "
        "Use 12 or less, a shorter data.seq_len, or a longer text."
    )
    with pytest.raises(ConfigError) as error:
        micro_batch_size(10, 2, 2)
    assert (
        str(error.value)
        == "data.batch_size: must be a multiple of accumulation times devices, 2 x 2 = 4; got 10."
        " Try 8 or 12."
    )
