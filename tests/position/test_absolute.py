"""Positions that are added to the embeddings: the equation of waves, far from the start of a text
too.
"""

import numpy as np
import pytest
import torch

from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import Tokens


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_waves_are_those_of_their_equation_however_far_from_the_start(layout):
    place = POSITIONS.create({"name": "sinusoidal", "layout": layout}, dim=16)
    at = np.array([0, 1, 2, 511, 4_096, 100_003, 1_000_001])
    added = place.embed(torch.zeros(1, len(at), 16), Tokens(position=torch.tensor(at)[None]))[0]
    angle = at[:, None] / 10_000 ** (np.arange(0, 16, 2) / 16)
    waves = np.stack([np.sin(angle), np.cos(angle)], 1 if layout == "concatenated" else 2).reshape(
        len(at), 16
    )
    torch.testing.assert_close(added, torch.tensor(waves).float(), rtol=0, atol=1e-6)


def test_waves_up_to_theta_and_after_an_offset():
    """As fairseq and M2M100 have them, with a padding token of number 1."""
    node = {"name": "sinusoidal", "layout": "concatenated", "offset": 2, "up_to_theta": True}
    place = POSITIONS.create(node, dim=16)
    at = np.arange(9)
    added = place.embed(torch.zeros(1, 9, 16), Tokens(position=torch.tensor(at)[None]))[0]
    angle = (at[:, None] + 2) * np.exp(np.arange(8) * -np.log(10_000) / 7)
    waves = np.concatenate([np.sin(angle), np.cos(angle)], 1)
    torch.testing.assert_close(added, torch.tensor(waves).float(), rtol=0, atol=1e-6)
