"""Position xpos: its equation written out."""

import os

import pytest
import torch

from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import Tokens

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_xpos_is_its_equation(pairing):
    """Of a query at n and a key at m, both as complex numbers: sum of Re(q conj(k) e^(i (n - m)
    rate)) z^((n - m) / span).
    """
    place = POSITIONS.create(
        {"name": "xpos", "pairing": pairing, "span": 5.0}, head_dim=8, max_len=16
    )
    draw = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, 7, 8, generator=draw) for _ in range(2))
    at = Tokens(slot=torch.arange(7)[None], position=torch.arange(7)[None])
    table = place.prepare(at, at)
    scores = (table.rotate(q, at) @ table.rotate_key(k, at).mT)[0, 0]
    later = Tokens(
        slot=torch.arange(4, 7)[None], position=torch.arange(4, 7)[None]
    )  # queries of a text whose keys are all there
    table = place.prepare(later, at)
    of_later = (table.rotate(q[:, :, 4:], later) @ table.rotate_key(k, at).mT)[0, 0]
    torch.testing.assert_close(of_later, scores[4:], rtol=1e-4, atol=1e-4)
    pairs = [x[0, 0].unflatten(-1, (2, 4) if pairing == "half" else (4, 2)) for x in (q, k)]
    q, k = (torch.complex(*x.unbind(-2 if pairing == "half" else -1)) for x in pairs)
    share = torch.arange(0, 8, 2) / 8
    rate, z = 10_000**-share, (share + 0.4) / 1.4
    for n in range(7):
        for m in range(7):
            rotated = (q[n] * k[m].conj() * torch.exp(1j * (n - m) * rate)).real
            torch.testing.assert_close(
                scores[n, m], (rotated * z ** ((n - m) / 5)).sum(), rtol=1e-4, atol=1e-4
            )
