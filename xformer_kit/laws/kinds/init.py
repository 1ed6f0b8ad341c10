"""Laws of initialisations."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from xformer_kit.laws.building import initial_model
from xformer_kit.laws.kinds.registry import Component, law_of
from xformer_kit.laws.random_numbers import TORCH, Draws
from xformer_kit.laws.tiny_composition import tiny_config, with_model_options
from xformer_kit.model.init_distributions import Matrix
from xformer_kit.plan import model_plan
from xformer_kit.tensors import embedding, hidden

SHAPE = 240, 320  # outputs and inputs of a matrix
STACKS = {"decoder": 6}
DEVIATIONS = 5  # standard errors that a mean may differ by


@law_of("init", "moments")
def moments(component: Component) -> None:
    """The drawn numbers have mean 0 and the standard deviation that `std` returns, or a smaller one
    as far as `cut` makes it smaller.

    Fails: the standard deviation of a matrix is 1.21e-01, and `std` returns 3.48e-01.
    Fix: Draw with the mean 0 and the standard deviation `self.std(matrix)`, which is no
        variance.
    """
    init = component.create(dim=SHAPE[1], stacks=STACKS)
    for what, matrix in _matrices():
        std = init.std(matrix)
        if not isinstance(std, int | float) or not 0 <= std < math.inf:
            raise component.broken(f"the standard deviation of {what} is {std}")
        drawn = init.draw(matrix, _generator(0)).double()
        error = DEVIATIONS / math.sqrt(drawn.numel())
        if not drawn.isfinite().all() or abs(drawn.mean()) > error * std:
            raise component.broken(f"the mean of {what} is {drawn.mean():.2e}, not 0")
        found, cut = drawn.std().item(), getattr(init, "cut", None)
        allowed = {1.0} if cut is None else {1.0, _std_within(cut)}
        if not any(abs(found - share * std) <= error * std for share in allowed):
            raise component.broken(
                f"the standard deviation of {what} is {found:.3e}, and `std` returns {std:.3e}"
            )


@law_of("init", "generator")
def generator(component: Component) -> None:
    """A matrix is a function of the generator that it is given, in fp32: the same from the same
    state, whatever other generators have drawn, and another one from another state.

    Fails: a matrix is drawn from torch's global generator; draw from the given generator.
    Fix: Give `generator=generator` to each function that draws, and return fp32.
    """
    init, draws = component.create(dim=SHAPE[1], stacks=STACKS), Draws()

    def draw(matrix: Matrix, seed: int) -> Tensor:
        return init.draw(matrix, _generator(seed))

    for what, matrix in _matrices():
        one, again = (draws.of(lambda: draw(matrix, 0), seed) for seed in (0, 1))  # noqa: B023
        for name in sorted(draws.names):
            raise component.broken(f"{what} is drawn from {name}; draw from the given generator")
        if not torch.equal(one, again):
            raise component.broken(f"{what} differs between two generators of one state")
        if init.std(matrix) > 0 and torch.equal(one, draw(matrix, 1)):
            raise component.broken(f"{what} is the same with another seed")
        if one.dtype != torch.float32 or tuple(one.shape) != matrix.shape:
            raise component.broken(f"{what} is {tuple(one.shape)} of {one.dtype}, not {SHAPE}")


@law_of("init", "start")
def start(component: Component) -> None:
    """The initial weights of a model are finite and a function of its seed and of their names: they
    do not depend on other generators, and, except for their size, not on other components.

    Fails: decoder.0.attn.q.weight is another one with other states of torch's global generator.
    Fix: Draw from the given generator only, and keep no state between two matrices.
    """
    for model in ("decoder", "encoder_decoder"):
        config = {**tiny_config(model), "init": component.node}
        first = dict(initial_model(config).named_parameters())
        other = {**tiny_config(model, norm="layer", position="none"), "init": component.node}
        for name, parameter in first.items():
            if not parameter.isfinite().all():
                raise component.broken(f"{name} is not finite")
        for changed, torch_seed, what in (
            (config, 1, f"other states of {TORCH}"),
            (other, 0, "another norm and position"),
        ):
            for name, parameter in initial_model(changed, torch_seed).named_parameters():
                if not _same_direction(parameter, first.get(name, parameter)):
                    raise component.broken(f"{name} is another one with {what}")
        reseeded = initial_model(with_model_options(config, seed=model_plan(config).seed + 1))
        if all(torch.equal(p, first[name]) for name, p in reseeded.named_parameters()):
            raise component.broken("another seed gives the same weights")


def _same_direction(one: Tensor, other: Tensor) -> bool:
    """Whether one is a multiple of the other, or they have different shapes."""
    if one.shape != other.shape:
        return True
    return torch.allclose(one * other.norm(), other * one.norm(), rtol=1e-4, atol=1e-6)


def _matrices() -> Iterator[tuple[str, Matrix]]:
    """Yields (what it is, matrix) of each role of a matrix in a stack."""
    plain, table = hidden("width", "dim"), embedding("vocab", "dim")
    yield "a matrix", Matrix("decoder.2.ffn.up.weight", SHAPE, plain, 0, 1.0, "decoder", 2)
    writes = hidden("dim", "width", writes=True)
    name = "decoder.2.ffn.down.weight"
    yield "a matrix that writes the stream", Matrix(name, SHAPE, writes, 12, 0.5, "decoder", 2)
    yield "an embedding", Matrix("embed.weight", SHAPE, table)


def _std_within(cut: float) -> float:
    """Returns the standard deviation of N(0, 1) within +-cut."""
    density = math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
    return math.sqrt(1 - 2 * cut * density / math.erf(cut / math.sqrt(2)))


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
