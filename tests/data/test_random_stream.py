"""The stream of random numbers from which probes draw."""

import numpy as np
import pytest

from xformer_kit.data.random_stream import RandomStream


def test_draws_are_uniform_and_differ():
    draw = RandomStream("a key")
    counts = np.bincount(draw.integers(7, 70_000), minlength=7)
    assert (abs(counts - 10_000) < 500).all()  # 5 standard deviations
    assert {RandomStream("k", i).integer(2, 4) for i in range(60)} == {2, 3, 4}
    fractions = draw.uniform(10_000)
    assert fractions.min() > 0 and fractions.max() <= 1 and abs(fractions.mean() - 0.5) < 0.02
    assert not np.array_equal(RandomStream("a").bits(4), RandomStream("b").bits(4))
    whole, components = RandomStream("a"), RandomStream("a")
    assert whole.bits(6).tolist() == [
        *components.bits(2).tolist(),
        *components.bits(0).tolist(),
        *components.bits(4).tolist(),
    ]


def test_splitmix64_gives_the_published_numbers():
    """The first outputs for seed 1234567 of Vigna's reference implementation
    (https://prng.di.unimi.it/splitmix64.c).
    """
    draw = RandomStream()
    draw.state = 1234567
    assert draw.bits(3).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize(("n", "count"), [(8, 8), (8, 3), (1000, 5), (1000, 249), (100_000, 64)])
def test_sample_draws_distinct_numbers_in_random_order(n, count):
    draws = [RandomStream("some", i).sample(n, count) for i in range(20)]
    for drawn in draws:
        assert (
            len(drawn) == count == len(set(drawn.tolist())) and drawn.min() >= 0 and drawn.max() < n
        )
    assert any((np.diff(drawn) < 0).any() for drawn in draws)
    assert len({str(drawn.tolist()) for drawn in draws}) == 20


def test_sample_draws_every_number_equally_often():
    counts = np.bincount(
        np.concatenate([RandomStream(i).sample(40, 4) for i in range(4000)]), minlength=40
    )
    assert (abs(counts - 400) < 100).all()  # 5 standard deviations
