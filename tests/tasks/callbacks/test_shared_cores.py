"""Threads sleep while they wait for each other only as long as other processes use the cores."""

import threading

import pytest
import torch

from tasks.callbacks.shared_cores import BUSY, PERIOD, SharedCores, helper_count


@pytest.fixture
def cores():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    observer = SharedCores()
    observer.threads = 2
    yield observer
    observer.on_train_end(None, None)
    torch.set_num_threads(threads)


def sleeps(observer, windows):
    """Whether the threads sleep after each window (seconds of a step, share)."""
    found = []
    for step, share in windows:
        observer.decide(step, share)
        found.append(observer.end_of_sleep is not None)
    return found


def test_threads_that_have_their_cores_spin(cores):
    assert not any(sleeps(cores, [(1.0, BUSY)] * 3 * PERIOD))


def test_threads_without_their_cores_sleep_and_spin_again_in_one_window_per_period(cores):
    busy = [(3.0, 0.5), (3.0, 0.5)], [(1.5, 0.4)] * PERIOD, [(3.0, 0.5)]
    first, period, again = (sleeps(cores, windows) for windows in busy)
    assert first == [False, True]  # the first window has slower steps
    assert period == [True] * (PERIOD - 1) + [False]
    assert again == [True]


def test_threads_do_not_sleep_for_a_period_if_steps_are_slower_with_sleep(cores):
    sleeps(cores, [(1.0, 0.5)] * 2)
    assert sleeps(cores, [(1.1, 0.4)] + [(1.0, 0.5)] * PERIOD) == [False] * PERIOD + [True]


def test_the_helpers_end_with_the_sleep(cores):
    before = set(threading.enumerate())
    sleeps(cores, [(1.0, 0.5)] * 2)
    helpers = set(threading.enumerate()) - before
    assert helpers
    cores.on_exception(None, None, ValueError())
    for helper in helpers:
        helper.join(timeout=10)
        assert not helper.is_alive()


def test_results_are_the_same_bit_for_bit(cores):
    x = torch.randn(300, 300, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def results():
        y = (x @ x).softmax(-1).square().sum()
        return [y, *torch.autograd.grad(y, [x])]

    spinning = results()
    sleeps(cores, [(1.0, 0.5)] * 2)
    assert all(map(torch.equal, spinning, results()))


@pytest.mark.parametrize("threads", [2, 3, 4, 16])
@pytest.mark.parametrize("cores", [1, 2, 3, 16, 96])
def test_there_are_as_few_helpers_as_make_more_threads_than_cores(threads, cores):
    count = helper_count(threads, cores)
    more = [1 + (helpers + 1) * (threads - 1) > cores for helpers in range(count + 1)]
    assert more[count] and not any(more[1:count])
