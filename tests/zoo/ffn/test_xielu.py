"""The network xielu: its formula."""

import os

import pytest
import torch
from torch.testing import assert_close

from xformer_kit.ffn import FFNS

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("transformers")


def network(start: tuple[float, float]):
    """A network with these learned numbers, and the activation of transformers with them."""
    from transformers.activations import XIELUActivation

    ours = FFNS.create({"name": "xielu", "width": 6}, dim=4).double()
    theirs = XIELUActivation(dtype=torch.float64)
    with torch.no_grad():
        for parameter, value in zip((ours.positive, ours.negative), start, strict=True):
            parameter.fill_(value)
        theirs.alpha_p.fill_(start[0])
        theirs.alpha_n.fill_(start[1])
    ours.eps.fill_(float(theirs.eps))
    return ours, theirs


@pytest.mark.parametrize("start", [(0.2, -0.7), (1.3, 0.4)])
def test_it_is_the_activation_of_transformers(start):
    ours, theirs = network(start)
    x = torch.linspace(-4, 4, 60, dtype=torch.float64).view(10, 6).requires_grad_()
    assert_close(ours.activated_channels(x), theirs(x))
    one, two = (
        torch.autograd.grad(f(x).sum(), (x, *weights))
        for f, weights in (
            (ours.activated_channels, (ours.positive, ours.negative)),
            (theirs, (theirs.alpha_p, theirs.alpha_n)),
        )
    )
    assert_close(one, two)


def test_its_numbers_start_at_four_fifths():
    ours = FFNS.create({"name": "xielu", "width": 6}, dim=4)
    starts = (ours.initial(name, (1,), torch.Generator()) for name in ("positive", "negative"))
    a, b = (torch.nn.functional.softplus(start) for start in starts)
    assert_close(torch.cat([a, b + 0.5]), torch.tensor([0.8, 0.8]))
