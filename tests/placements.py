"""Placements with random parameters, two sublayers, and tests made of equations."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from xformer_kit.placement import PLACEMENTS, SublayerGroup
from xformer_kit.tensors.tokens import UNKNOWN

DIM = 7
X = torch.randn(2, 3, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
F, G = (nn.Linear(DIM, DIM).double() for _ in range(2))
torch.manual_seed(4)
for layer in (F, G):
    nn.init.normal_(layer.weight)


class ScaledLinear:
    """A linear sublayer whose output is multiplied by a factor when it is added to the stream."""

    def __init__(self, layer, factor):
        self.layer = layer
        self.factor = factor

    def __call__(self, x):
        return self.layer(x)

    def added(self, h):
        return self.factor * h


def group(*layers, factor=1.0):
    """Returns f with f(x) = factor * (the sum of the layers' outputs)."""
    return SublayerGroup([ScaledLinear(layer, factor) for layer in layers])


def random_placement(name, kinds, **options):
    """Returns a placement with layer norms, with every parameter random."""
    part = PLACEMENTS.create(
        {"name": name, **options},
        dim=DIM,
        norm=lambda: nn.LayerNorm(DIM),
        depth=1,
        layers=4,
        order=2,
        parallel=len(kinds),
        kinds=kinds,
        stack="decoder",
        stacks={"decoder": 4},
    )
    draw = torch.Generator().manual_seed(1)
    for parameter in part.parameters():
        nn.init.normal_(parameter, mean=float(parameter.ndim < 2), generator=draw)
    return part.double()


def result(part, sublayers, factor=1.0, finish=True):
    """Returns the output of two blocks with this placement, whose final norm multiplies by 3;
    without `finish`, the state before it.
    """
    streams = part.streams({"streams": getattr(part, "num_streams", 1)})
    f = group(*sublayers, factor=factor)
    state = part(part.start(X, streams), f, UNKNOWN)
    state = part(state, f, UNKNOWN)  # twice, so that each stream is read
    return part.finish(state, lambda x: 3 * x) if finish else state


def twice(step):
    return step(step(X))


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def equations(cases):
    """Returns a test of placements: name -> (options, output for F, output for F and G in
    parallel).

    An output is a function of the placement, the stream and the factor of a sublayer.
    """

    @pytest.mark.parametrize("factor", [1.0, 0.3])
    @pytest.mark.parametrize("name", cases)
    def test(name, factor):
        options, one, two = cases[name]
        for kinds, sublayers, equation in ((["attn"], [F], one), (["attn", "ffn"], [F, G], two)):
            part = random_placement(name, kinds, **options)
            expected = twice(lambda x: equation(part, x, factor))  # noqa: B023
            assert_close(result(part, sublayers, factor), 3 * expected)

    return test
