"""Position fire: its equation written out."""

import math
import os

import pytest
import torch

from tests.messages import messages
from tests.positions import bias, random_position
from xformer_kit.laws import faults, tiny_config

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("first", [0, 30])
def test_fire_is_its_equation(first):
    """Positions 0 to 6, short of L, and 30 to 36, beyond it."""
    place = random_position({"name": "fire", "width": 5, "threshold": 12.0}, heads=3)
    got, reach = bias(place, 7, 3, first), abs(12 * place.reach.item())
    assert 6 < reach < 30

    def psi(x):
        return math.log(abs(place.c.item() * x) + 1)

    for i in range(first, first + 7):
        for j in range(first, first + 7):
            share = psi(i - j) / (psi(max(reach, i)) + 1e-6)
            hidden = torch.relu(place.up.weight[:, 0] * share + place.up.bias)
            torch.testing.assert_close(got[:, i - first, j - first], place.down.weight @ hidden)


def test_faults_have_the_expected_sentences():
    assert messages(faults(tiny_config(position={"name": "fire", "threshold": 0.0}))) == [
        "position.threshold: must be above 0; got 0.0."
    ]
