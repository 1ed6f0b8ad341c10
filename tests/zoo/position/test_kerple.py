"""Position kerple: its equation written out."""

import os

import pytest
import torch

from tests.messages import messages
from tests.positions import bias, random_position
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("first", [0, 30])
@pytest.mark.parametrize("kernel", ["log", "power"])
def test_kerple_is_its_equation(kernel, first):
    place = random_position({"name": "kerple", "kernel": kernel}, heads=3)
    got = bias(place, 7, 3, first)
    for h in range(3):
        r1, r2 = place.r1[h].exp(), place.r2[h]
        for i in range(7):
            for j in range(7):
                far = abs(i - j)
                by_log, by_power = (
                    -r1 * torch.log(1 + r2.exp() * far),
                    -r1 * far ** (2 * r2.sigmoid()),
                )
                torch.testing.assert_close(got[h, i, j], by_log if kernel == "log" else by_power)


def test_kerple_starts_within_its_ranges_and_heads_differ():
    for kernel, top in (("log", 2.0), ("power", 1.0)):
        config = tiny_config(position={"name": "kerple", "kernel": kernel})
        place = Composition(config, "").model().decoder.position["base"]
        place.r1.data = place.initial("r1", (400,), torch.Generator().manual_seed(0))
        r1 = place.r1.exp()
        assert 0 < r1.min() < 0.1 * top
        assert 0.9 * top < r1.max() < top
        r2 = place.initial("r2", (400,), torch.Generator().manual_seed(0))
        if kernel == "log":
            assert 0 < r2.exp().min() < 0.1
            assert 0.9 < r2.exp().max() < 1
    r2 = 2 * r2.sigmoid()
    assert r2.min() < 0.1
    assert 1.9 < r2.max() < 2


def test_faults_have_the_expected_sentences():
    assert messages(faults(tiny_config(position={"name": "kerple", "kernel": "pow"}))) == [
        "position.kernel: no choice is called 'pow'. Did you mean 'power'? Known: log, power."
    ]
