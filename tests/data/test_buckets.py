"""Batches by length are a function of (seed, epoch, step), equal on every layout, and have at most
batch_tokens tokens.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xformer_kit.data.buckets import (
    LengthBatches,
    batch_bounds,
    batches_by_length,
    max_rows,
    step_rows,
)
from xformer_kit.registry import ConfigError

SIDES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=60, max_size=300)


def some_lengths(n=1000, seed=0):
    return np.random.default_rng(seed).integers(2, 40, (n, 2))


def epoch_of(batches, epoch):
    first = epoch * batches.steps_per_epoch
    return [batches[step].tolist() for step in range(first, first + batches.steps_per_epoch)]


def test_max_rows_has_the_expected_values():
    rows = {1: 64, 3: 16, 4: 16, 8: 8, 9: 4, 16: 4, 17: 2, 33: 1, 64: 1, 65: 0}
    assert {length: max_rows(64, length) for length in rows} == rows
    assert max_rows(64, 0) == max_rows(64, 1)  # a text without a token has a place all the same
    descending = np.array([9, 9, 8, 8, 8, 8, 3, *[2] * 16])
    assert batch_bounds(descending, 32).tolist() == [
        0,
        2,
        6,
        14,
    ]  # 2 x 9, 4 x 8, 8 x 3; 9 of length 2 are less than 16
    assert step_rows({"batch_size": 5, "seq_len": 16}) == 5
    assert step_rows({"batch_size": 5, "batch_tokens": 400, "seq_len": 16}) == 24


@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=40), tokens=st.integers(4, 40))
@settings(deadline=None)
def test_every_batch_is_full_and_no_further_one_fits(lengths, tokens):
    descending = sorted(lengths, reverse=True)
    bounds = batch_bounds(np.array(descending), tokens).tolist()
    rows = [max_rows(tokens, descending[start]) for start in bounds[:-1]]
    assert bounds == [0, *np.cumsum(rows)]
    left = descending[bounds[-1] :]
    assert not left or len(left) < max_rows(tokens, left[0])
    for batch in batches_by_length(np.array(lengths), tokens)[:-1]:  # of validation
        assert (len(batch) + 1) * lengths[batch[0]] > tokens


@pytest.mark.extended
@given(
    sides=SIDES,
    seed=st.integers(0, 2**63 - 1),
    tokens=st.integers(40, 400),
    one_stream=st.booleans(),
)
@settings(deadline=None)
def test_an_epoch_shows_each_example_at_most_once_within_the_budget(
    sides, seed, tokens, one_stream
):
    lengths = np.array(sides)
    sizes = lengths.sum(1) if one_stream else lengths.max(1)
    tokens = max(tokens, int(sizes.max()))
    try:
        batches = LengthBatches(lengths, tokens, seed, one_stream)
    except ConfigError:
        assert len(batch_bounds(np.sort(sizes)[::-1], tokens)) == 1  # less than one batch
        return
    for epoch in (0, 3):
        batches_found = epoch_of(batches, epoch)
        indices = [i for batch in batches_found for i in batch]
        assert len(set(indices)) == len(indices) == len(sides) - batches.dropped
        for batch in batches_found:
            rows = len(batch)
            assert rows * sizes[batch].max() <= tokens
            assert rows % 8 == 0 or rows in (1, 2, 4)
            assert (np.diff(sizes[batch]) <= 0).all()


@given(
    world=st.sampled_from([1, 2, 4]),
    accumulate=st.sampled_from([1, 2]),
    step=st.integers(0, 60),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_every_layout_takes_the_same_global_batch(world, accumulate, step, seed):
    batches = LengthBatches(some_lengths(), 512, seed)
    batches.check_divisible(accumulate, world)
    parts = [
        batches.micro_batch(step, m, accumulate, r, world)
        for m in range(accumulate)
        for r in range(world)
    ]
    assert [i for part in parts for i in part] == LengthBatches(some_lengths(), 512, seed)[
        step
    ].tolist()
    assert len({len(part) for part in parts}) == 1


def test_steps_can_be_computed_in_any_order():
    make = lambda: LengthBatches(some_lengths(), 512, seed=3)
    batches = make()
    steps = batches.steps_per_epoch
    for step in (2 * steps + 1, 0, steps, steps - 1, 5, 0):
        assert (
            batches[step].tolist() == make()[step].tolist() and batches.epoch(step) == step // steps
        )


def test_epochs_and_seeds_have_different_batches_and_dropped_examples():
    lengths = np.repeat(np.arange(5, 15), 103)  # of one side
    batches = LengthBatches(lengths, 160, seed=0)
    first, second = epoch_of(batches, 0), epoch_of(batches, 1)
    assert sorted(map(len, first)) == sorted(map(len, second)) and list(map(len, first)) != list(
        map(len, second)
    )
    other = epoch_of(LengthBatches(lengths, 160, seed=1), 0)
    for left_batches, right_batches in ((first, second), (first, other)):
        company = {frozenset(batch) for batch in left_batches} & {
            frozenset(batch) for batch in right_batches
        }
        assert len(company) < len(left_batches) / 10
    left_out = [
        set(range(len(lengths))) - {i for batch in epoch for i in batch}
        for epoch in (first, second, other)
    ]
    assert batches.dropped > 0 and {len(some) for some in left_out} == {batches.dropped}
    assert left_out[0] != left_out[1] != left_out[2]


def test_every_example_occurs_in_some_epoch():
    batches = LengthBatches(some_lengths(100), 300, seed=0)
    indices = {i for epoch in range(20) for batch in epoch_of(batches, epoch) for i in batch}
    assert batches.dropped > 0 and indices == set(range(100))


def test_batches_by_length_have_little_padding():
    draw = np.random.default_rng(0)
    source = draw.integers(5, 60, 50_000)
    lengths = np.stack(
        [source, source + draw.integers(-4, 5, 50_000)], axis=1
    )  # as of translations

    def padding(batches):
        real = sum(lengths[batch].sum() for batch in batches)
        return 1 - real / sum(len(batch) * lengths[batch].max(0).sum() for batch in batches)

    batches = LengthBatches(lengths, 4096, seed=0)
    assert (
        padding(epoch_of(batches, 0))
        < 0.05
        < 0.4
        < padding(draw.permutation(50_000).reshape(-1, 100))
    )
    full = [len(batch) * lengths[batch].max() for batch in epoch_of(batches, 0)]
    assert max(full) <= 4096 and np.mean(full) > 0.9 * 4096


@pytest.mark.extended
@given(sides=SIDES, tokens=st.integers(1, 300), one_stream=st.booleans())
@settings(deadline=None)
def test_validation_reads_every_example_once(sides, tokens, one_stream):
    lengths = np.array(sides)
    sizes = lengths.sum(1) if one_stream else lengths.max(1)
    batches_found = batches_by_length(lengths, tokens, one_stream)
    assert sorted(i for batch in batches_found for i in batch) == list(range(len(sides)))
    assert all(
        len(batch) == 1 or len(batch) * sizes[batch].max() <= tokens for batch in batches_found
    )


def test_wrong_batch_tokens_are_an_error():
    def sentence(call):
        with pytest.raises(ConfigError) as error:
            call()
        return str(error.value)

    assert (
        sentence(lambda: LengthBatches(np.array([[3, 70]]), 64, 0))
        == "data.batch_tokens: must hold the longest example, 70 tokens; got 64. "
        "Try 560, or a smaller data.seq_len with data.too_long=drop."
    )
    assert (
        sentence(lambda: LengthBatches(np.full((20, 2), 5), 4096, 0))
        == "data.batch_tokens: must be at most what the training data hold; got 4,096, and its 20"
        " examples have up to 5 tokens. Use 80 or less, or data.batch_size."
    )
    LengthBatches(np.full((20, 2), 5), 80, 0)
    batches = LengthBatches(np.full((20, 2), 20), 100, 0)
    assert (
        sentence(lambda: batches.check_divisible(4, 2))
        == "data.batch_tokens: must give every batch rows in a multiple of accumulation times"
        " devices, 4 x 2 = 8; got 100, and a batch of 4 rows. Try 160 or more, or fewer"
        " micro-batches, or data.batch_size."
    )
    assert sentence(lambda: batches.check_divisible(1, 3)).endswith(
        "4 rows. Use a product of 2, 4 or 8, or data.batch_size."
    )
