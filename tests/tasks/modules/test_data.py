"""The examples of each rank in each step, also after a resumption."""

import numpy as np
import pytest
import torch

from xformer_kit.data.buckets import LengthBatches
from xformer_kit.data.order import GlobalBatches
from xformer_kit.data.preparation.training_data import StepSampler
from xformer_kit.registry import ConfigError


def by_count() -> GlobalBatches:
    return GlobalBatches(22, 4, seed=0)


def by_length() -> LengthBatches:
    lengths = np.random.default_rng(0).integers(1, 17, size=(97, 2))
    return LengthBatches(lengths, 64, seed=3)


MAKES = [by_count, by_length]


@pytest.mark.parametrize("make", MAKES)
def test_the_examples_of_all_ranks_are_the_global_batch(make):
    """Keys contain the epoch; micro-batches are equal parts of a rank's list."""
    batches = make()
    total = 3 * batches.steps_per_epoch
    ranks = [StepSampler(make(), stop=total, accumulate=2, rank=rank, world=2) for rank in range(2)]
    for step, lists in enumerate(zip(*ranks, strict=True)):
        keys = [divmod(key, batches.n) for each in lists for key in each]
        assert {epoch for epoch, _ in keys} == {step // batches.steps_per_epoch}
        assert sorted(index for _, index in keys) == sorted(batches[step].tolist())
        for micro in range(2):
            whole = [batches.micro_batch(step, micro, 2, rank, 2) for rank in range(2)]
            halves = [each[len(each) // 2 * micro :][: len(each) // 2] for each in lists]
            assert [[key % batches.n for key in half] for half in halves] == whole
    assert step == total - 1


@pytest.mark.parametrize("make", MAKES)
def test_a_resumed_run_reads_the_remaining_steps(make):
    total = 2 * make().steps_per_epoch
    every = list(StepSampler(make(), stop=total, accumulate=2, rank=1, world=2))
    rest = StepSampler(make(), stop=total, accumulate=2, rank=1, world=2)
    rest.start = 3
    assert list(rest) == list(rest) == every[3:]
    assert (len(rest), len(every)) == (total - 3, total)
    rest.start = total + 1  # of a run that is longer than is asked for now
    assert len(rest) == len(list(rest)) == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_yields_the_steps_with_and_without_workers(workers):
    steps = StepSampler(by_count(), stop=8)
    steps.start = 2
    loader = torch.utils.data.DataLoader(torch.arange(44), batch_sampler=steps, num_workers=workers)
    assert len(loader) == 6
    assert [batch.tolist() for batch in loader] == list(steps)


def test_overfit_batches_repeats_the_first_batches():
    steps = StepSampler(by_count(), stop=7, overfit_batches=3)
    first = list(StepSampler(by_count(), stop=3))
    assert list(steps) == [*first, *first, first[0]]


def test_a_batch_that_does_not_split_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"^data.batch_size: must be a multiple of accumulation times devices, 3 x 1 = 3",
    ):
        StepSampler(by_count(), stop=8, accumulate=3)
