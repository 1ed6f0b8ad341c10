"""attn cosine: by its equation."""

import pytest
import torch
from refusals import refusals
from torch.nn import functional as F
from torch.testing import assert_close

from tests.attentions import layer, weights
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import VOCAB
from xformer_kit.model.build import build_model


@torch.no_grad()
def test_cosine():
    attn, x, out = layer(name="cosine", heads=6, kv_heads=6, head_dim=5)
    q, k, v = ((x @ getattr(attn, name).weight.t()).unflatten(-1, (6, 5)) for name in "qkv")
    factor = attn.q_norm.log_factor.exp()
    heads = [
        weights(F.normalize(q[:, :, i], dim=-1), F.normalize(k[:, :, i], dim=-1), factor[i])
        @ v[:, :, i]
        for i in range(6)
    ]
    assert_close(out, torch.cat(heads, -1) @ attn.o.weight.t())
    assert build_model(tiny_config(attn="cosine"), VOCAB).decoder.blocks[
        0
    ].attn.q_norm.log_factor.exp().tolist() == pytest.approx([10] * 6)


@torch.no_grad()
def test_the_factor_of_cosines_is_bounded():
    attn, *_ = layer(name="cosine", largest=11.0)
    attn.q_norm.log_factor.fill_(9)
    assert_close(
        attn.q_norm(torch.randn(1, 6, 4, 10).double()).norm(dim=-1),
        torch.full((1, 6, 4), 11.0).double(),
    )


REFUSED = {
    "attn=cosine attn.largest=5": (
        "attn.largest: must be at least attn.start; got 5 and 10.0. Try 10."
    ),
    "attn=cosine attn.start=0": "attn.start: must be above 0; got 0.",
}


test_refused_configs = refusals(REFUSED)
