"""extra.unit_weights: which axis of a matrix has length 1, and that it keeps it after a step."""

import pytest
import torch
from torch import nn

from xformer_kit import build, compose
from xformer_kit.extra.unit_weights import unit_axes
from xformer_kit.ffn import FFN, FFNS

WORDS = ["extra.unit_weights={}", "model.dim=24", "attn.heads=4", "attn.head_dim=8"]


class Unstated(FFN):
    """Its matrices have names that no class describes."""

    def __init__(self, dim: int):
        super().__init__()
        self.first, self.last = nn.Linear(dim, 7, bias=False), nn.Linear(7, dim, bias=False)

    def forward(self, x, tokens):
        return self.last(self.first(x).relu()), {}


@pytest.mark.parametrize("name", ["embed", "decoder.0.attn.q", "decoder.0.attn.o"])
@pytest.mark.parametrize("more", [[], ["model.embed_dim=10"]])
def test_rows_that_read_and_columns_that_write_have_length_one(name, more):
    model = build(compose([*WORDS, *more]), 11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    model.constrain()
    weight = model.get_submodule(name).weight
    axis = -2 if name == "decoder.0.attn.o" else -1
    torch.testing.assert_close(weight.norm(dim=axis), torch.ones(weight.norm(dim=axis).shape))
    assert model.decoder.norm.weight.detach().eq(3.0).all()  # a vector stays as it was


def test_a_matrix_without_stated_axes_reads_the_stream_by_its_number_of_channels():
    FFNS.register("unstated")(Unstated)
    try:
        axes = unit_axes(build(compose([*WORDS, "ffn=unstated"]), 11))
    finally:
        FFNS.forget(Unstated.__module__)
    assert axes["decoder.0.ffn.first.weight"] == -1
    assert "decoder.0.ffn.last.weight" not in axes
