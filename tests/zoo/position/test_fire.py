"""Position fire: its equation written out."""

import math
import os

import pytest
import torch

from tests.messages import messages
from xformer_kit.laws import faults, tiny
from xformer_kit.laws.case import randomise
from xformer_kit.model.tokens import Tokens
from xformer_kit.position import POSITIONS

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def made(node: dict, heads: int = 6, stack: str = "decoder"):
    place = POSITIONS.create(
        node, dim=12, heads=heads, head_dim=4, max_len=16, layers=2, stack=stack
    ).double()
    randomise(place)
    return place


def bias(place, length: int, heads: int = 6, first: int = 0) -> torch.Tensor:
    """(heads, length, length), of tokens that stand from `first` on."""
    tokens = Tokens(position=torch.arange(first, first + length)[None])
    head = torch.arange(heads).view(1, -1, 1, 1)
    return place.bias(tokens.as_query(), tokens.as_key(), head).expand(1, heads, length, length)[0]


@pytest.mark.parametrize("first", [0, 30])
def test_fire_is_its_equation(first):
    """Positions 0 to 6, short of L, and 30 to 36, beyond it."""
    place = made({"name": "fire", "width": 5, "threshold": 12.0}, heads=3)
    got, reach = bias(place, 7, 3, first), abs(12 * place.reach.item())
    assert 6 < reach < 30

    def psi(x):
        return math.log(abs(place.c.item() * x) + 1)

    for i in range(first, first + 7):
        for j in range(first, first + 7):
            share = psi(i - j) / (psi(max(reach, i)) + 1e-6)
            hidden = torch.relu(place.up.weight[:, 0] * share + place.up.bias)
            torch.testing.assert_close(got[:, i - first, j - first], place.down.weight @ hidden)


@pytest.mark.parametrize("node", ["fire"], ids=str)
def test_a_bias_is_point_wise(node):
    """So a kernel may ask for one pair of tokens and one head at a time."""
    place = made({"name": node} if isinstance(node, str) else node)
    whole, q, k = bias(place, 9), Tokens(position=torch.arange(9)), Tokens(position=torch.arange(9))

    def one(h, i, j):
        return place.bias(q.map(lambda x: x[i]), k.map(lambda x: x[j]), h)

    h, i, j = torch.meshgrid(torch.arange(6), torch.arange(9), torch.arange(9), indexing="ij")
    got = torch.func.vmap(one)(h.flatten(), i.flatten(), j.flatten()).unflatten(0, (6, 9, 9))
    torch.testing.assert_close(got, whole)


def test_what_is_refused():
    assert messages(faults(tiny(position={"name": "fire", "threshold": 0.0}))) == [
        "position.threshold: must be above 0; got 0.0."
    ]
