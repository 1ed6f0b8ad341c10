"""Each law of initialisations is broken by a faulty initialisation."""

import pytest
import torch
from kind_laws import assert_keeps_all, broken_kind_test

from xformer_kit.laws.kinds import KIND_LAWS
from xformer_kit.model.init_distributions import Init


class Uniform(Init):
    """A good one: uniform, with the standard deviation std / sqrt(inputs)."""

    def __init__(self, *, std: float = 1.0):
        super().__init__(False, constant_std=std)

    def spread(self, outputs, inputs):
        return self.constant_std * inputs**-0.5

    def draw(self, matrix, generator):
        side = 3**0.5 * self.std(matrix)
        return torch.empty(matrix.shape).uniform_(-side, side, generator=generator)


class Shifted(Uniform):
    def draw(self, matrix, generator):
        return super().draw(matrix, generator) + 0.2 * self.std(matrix)


class VarianceForDeviation(Uniform):
    def draw(self, matrix, generator):
        return super().draw(matrix, generator) * self.std(matrix)


class Infinite(Uniform):
    def spread(self, outputs, inputs):
        return float("inf")


class IgnoresGenerator(Uniform):
    def draw(self, matrix, generator):
        return super().draw(matrix, None)


class FixedSeed(Uniform):
    def draw(self, matrix, generator):
        return super().draw(matrix, torch.Generator().manual_seed(0))


class CountsDraws(Uniform):
    draws = 0

    def draw(self, matrix, generator):
        self.draws += 1
        return super().draw(matrix, generator) * self.draws


class Half(Uniform):
    def draw(self, matrix, generator):
        return super().draw(matrix, generator).half()


class NotANumber(Uniform):
    """Is not finite for matrices with few inputs."""

    def draw(self, matrix, generator):
        drawn = super().draw(matrix, generator)
        return drawn / 0 if matrix.shape[-1] < 30 else drawn


class FromTorch(Uniform):
    def draw(self, matrix, generator):
        return super().draw(matrix, None)


ARGUMENTS = [
    ("moments", Shifted, "the mean of a matrix is .*, not 0"),
    ("moments", VarianceForDeviation, "the standard deviation of a matrix is"),
    ("moments", Infinite, "the standard deviation of a matrix is inf"),
    ("generator", IgnoresGenerator, "a matrix is drawn from torch's global generator"),
    ("generator", FixedSeed, "a matrix is the same with another seed"),
    ("generator", CountsDraws, "a matrix differs between two generators of one state"),
    ("generator", Half, "of torch.float16, not"),
    ("start", NotANumber, "is not finite"),
    ("start", FromTorch, "is another one with other states of torch's global generator"),
    ("start", FixedSeed, "another seed gives the same weights"),
]

test_a_broken_initialisation_is_caught = broken_kind_test("init", ARGUMENTS)


def test_every_law_catches_a_broken_initialisation():
    assert KIND_LAWS["init"].keys() == {law for law, *_ in ARGUMENTS}


@pytest.mark.extended
def test_an_initialisation_keeps_all():
    assert_keeps_all("init", Uniform)
