"""Laws of attn differential, mean, dot and cosine."""

import pytest
import torch
from torch.testing import assert_close

from tests.attentions import IDS, model_of, read
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.tensors.fused_projections import with_fused_projections

NODES = [
    {"name": "differential"},
    {"name": "differential", "bias": True, "weight": False, "kv_heads": 6},
    {"name": "mean"},
    {"name": "dot"},
    {"name": "cosine", "bias": True},
]
LAWS_OF_A_DECODER = [
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


@pytest.mark.extended
@pytest.mark.parametrize("node", NODES, ids=str)
def test_laws(node):
    position = "alibi" if node["name"] == "mean" else "rotary"
    config = tiny_config(attn=node, position=position)
    for law in LAWS_OF_A_DECODER:
        assert LAWS[law](config) is None


@pytest.mark.parametrize("node", [node for node in NODES if node["name"] != "mean"], ids=str)
def test_laws_of_a_source(node):
    config = tiny_config(model="encoder_decoder", attn=node, position="rotary")
    assert not faults(config)
    for law in ("source", "source padding", "source once", "documents", "greedy"):
        assert LAWS[law](config) is None


@pytest.mark.parametrize("node", NODES, ids=str)
@torch.no_grad()
def test_a_query_without_visible_keys_gives_zero(node):
    nobody = {
        "name": "all_of",
        "of": [{"name": "causal"}, {"name": "not", "of": {"name": "causal"}}],
    }
    attn = node | {"bias": False} if "bias" in node else node
    _, _, out = read(model_of(attn, position="none", mask=nobody), IDS)
    assert (out == 0).all()


@pytest.mark.parametrize("node", NODES, ids=str)
@torch.no_grad()
def test_fused_projections_give_the_same(node):
    model = model_of(node, position="none")
    expected = model(IDS)
    with torch.inference_mode(), with_fused_projections(model, 2):
        assert_close(model(IDS), expected)
