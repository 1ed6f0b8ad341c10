"""attn cosine: by its equation, and under the laws."""

import pytest
import torch
from refusing import refusals
from torch.nn import functional as F
from torch.testing import assert_close

from xformer_kit.laws import LAWS, faults, tiny
from xformer_kit.laws.case import LENGTH, VOCAB, randomise
from xformer_kit.model.build import build_model
from xformer_kit.model.fused_projections import packed

IDS = torch.arange(2 * LENGTH).view(2, LENGTH) % VOCAB

HIDDEN = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)


def layer(depth=1, position="none", **attn):
    """An attention of a randomised model, with what it reads and what it gives."""
    model = build_model(tiny(attn=attn, position=position), VOCAB)
    randomise(model)
    seen = []
    attention = model.double().eval().decoder.blocks[depth].attn
    attention.register_forward_hook(lambda _, args, out: seen.extend((args[0], out)))
    with torch.no_grad():
        model(IDS)
    return attention, *seen


def weights(q, k, scale):
    """Causal weights of one head."""
    return (q @ k.transpose(-1, -2) * scale).masked_fill(HIDDEN, -torch.inf).softmax(-1)


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
    assert build_model(tiny(attn="cosine"), VOCAB).decoder.blocks[
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


NODES = [
    {"name": "cosine", "bias": True},
]

SAID = [
    "causality",
    "documents",
    "padding",
    "batch",
    "nothing",
    "cache",
    "cache with padding",
    "select and rewind",
    "greedy",
    "kernels",
    "kernels in bf16",
    "gradients",
    "precision",
    "start",
    "rebuild",
]


@pytest.mark.parametrize("node", NODES, ids=str)
def test_laws(node):
    position = "alibi" if node["name"] == "mean" else "rotary"
    for law in SAID:
        assert LAWS[law](tiny(attn=node, position=position)) is None


@pytest.mark.parametrize("node", [node for node in NODES if node["name"] != "mean"], ids=str)
def test_laws_of_a_source(node):
    config = tiny(model="encoder_decoder", attn=node, position="rotary")
    assert not faults(config)
    for law in ("source", "source padding", "source once", "documents", "greedy"):
        assert LAWS[law](config) is None


@pytest.mark.parametrize("node", NODES, ids=str)
@torch.no_grad()
def test_a_row_with_nothing_to_see_is_zero(node):
    nobody = {
        "name": "all_of",
        "of": [{"name": "causal"}, {"name": "not", "of": {"name": "causal"}}],
    }
    model = build_model(
        tiny(attn=node | {"bias": False} if "bias" in node else node, position="none", mask=nobody),
        VOCAB,
    )
    randomise(model)
    outs = []
    model.decoder.blocks[0].attn.register_forward_hook(lambda _, args, out: outs.append(out))
    model.double().eval()(IDS)
    assert (outs[0] == 0).all()


@pytest.mark.parametrize("node", NODES, ids=str)
@torch.no_grad()
def test_what_generation_packs_is_the_same(node):
    model = build_model(tiny(attn=node, position="none"), VOCAB)
    randomise(model)
    expected = model.double().eval()(IDS)
    with torch.inference_mode(), packed(model, 2):
        assert_close(model(IDS), expected)


REFUSED = {
    "attn=cosine attn.largest=5": (
        "attn.largest: must be at least attn.start; got 5 and 10.0. Try 10."
    ),
    "attn=cosine attn.start=0": "attn.start: must be above 0; got 0.",
}


test_refused_configs = refusals(REFUSED)
