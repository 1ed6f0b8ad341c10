"""attn retention: by its equation, and refused where it cannot be."""

import math

import pytest
import torch
from refusals import refusals_among
from torch.testing import assert_close

from tests.attentions import heads, layer
from xformer_kit.laws.tiny_composition import LENGTH


@pytest.mark.parametrize("decay", ["powers", "spaced"])
@torch.no_grad()
def test_retention(decay):
    attn, x, out = layer(name="retention", decay=decay, v_head_dim=4)
    q, k, v = heads(attn, x, "qkv")
    shares = [1 / 32, 1 / 64, 1 / 128, 1 / 256, 1 / 512, 1 / 1024]
    if decay == "spaced":
        shares = torch.linspace(math.log(1 / 32), math.log(1 / 512), 6).exp().tolist()
    gamma = torch.tensor([1 - share for share in shares]).double()
    state, rows = torch.zeros(2, 6, 10, 4).double(), []
    for t in range(LENGTH):
        state = gamma[:, None, None] * state + torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        rows.append(torch.einsum("bhd,bhde->bhe", q[:, t], state) / math.sqrt(10))
    y = torch.stack(rows, 1)
    y = (y - y.mean(-1, keepdim=True)) / (y.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    gate = x @ attn.gate.weight.t()
    assert_close(
        out, (y.flatten(2) * gate * gate.sigmoid()) @ attn.o.weight.t(), rtol=1e-6, atol=1e-6
    )


ALIBI = (
    "attn: attn 'linear' reads a sum over the past and forms no scores, which position 'alibi'"
    " changes one by one. Choose position=rotary, learned, sinusoidal or none."
)

REFUSED = [
    (
        ["attn=retention", "mask=full"],
        [
            "attn: attn 'retention' passes its state from token to token in their order, and mask"
            " 'full' shows later ones. Choose mask=causal."
        ],
    ),
    (
        ["attn=retention", "attn.chunk=0", "attn.v_head_dim=1"],
        [
            "attn.v_head_dim: must be at least 2 channels; got 1.",
            "attn.chunk: must be at least 1 token; got 0.",
        ],
    ),
]


test_refused_configs = refusals_among(REFUSED)
