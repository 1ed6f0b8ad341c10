"""attn compositional: equal to its equation, written out token by token."""

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.attentions import HEADS, SHORT, WIDE, model_of, past, short_layer
from xformer_kit.laws import LAWS, faults, tiny_config


@torch.no_grad()
@pytest.mark.parametrize("mask", ["causal", "full"])
def test_compositional_by_its_equations(mask):
    model = "decoder" if mask == "causal" else "encoder"
    attn, x, out = short_layer(
        {"name": "compositional", "retrievals": 3, "v_head_dim": 5, "choice_dim": 4},
        model=model,
        mask=mask,
    )
    assert attn.v.out_features == 3 * 5
    for b, n in ((0, 0), (1, 4), (0, 7)):
        heads = []
        for i in range(HEADS):
            kv = i // 2  # three keys for six searches
            q = attn.q(x[b, n])[i * WIDE :][:WIDE]
            seen = list(past(n, mask == "causal"))
            k = torch.stack([attn.k(x[b, m])[kv * WIDE :][:WIDE] for m in seen])
            weights = (k @ q / WIDE**0.5).softmax(0)
            found = torch.stack(
                [weights @ attn.v(x[b, seen])[:, 5 * j :][:, :5] for j in range(3)]
            )  # (r, e)
            asked = attn.choice_q(x[b, n])[4 * i :][:4]
            heads.append((attn.choice_k(found) @ asked / 4**0.5).softmax(0) @ found)
        assert_close(out[b, n], attn.o(torch.cat(heads)))


@torch.no_grad()
def test_one_retrieval_is_multi_head_whose_heads_have_one_value():
    ours = model_of({"name": "compositional", "retrievals": 1, "kv_heads": HEADS}, position="none")
    multi = model_of({"name": "multi_head", "kv_heads": HEADS}, position="none")
    state = dict(ours.state_dict())
    for name, value in ours.state_dict().items():
        if name.endswith("attn.v.weight"):
            state[name] = value.repeat(HEADS, 1)
    multi.load_state_dict(state)
    assert_close(ours(SHORT), multi(SHORT))


TWO = {
    "model": "encoder_decoder",
    "position": "none",
    "encoder": {"attn": {"name": "orthoformer"}, "mask": "full"},
}


@pytest.mark.parametrize(
    "node", [{"name": "compositional", "retrievals": 3}, {"name": "lambda", "scope": 4}], ids=str
)
def test_laws_of_two_stacks(node):
    """They attend to a source too; the encoder is an orthoformer."""
    config = tiny_config(attn=node, mask="causal", **TWO)
    assert not faults(config)
    for law in ("source", "source padding", "source once", "gradients", "documents", "cache"):
        assert LAWS[law](config) is None


REFUSED = {
    "attn=compositional attn.retrievals=0": (
        "attn.retrievals: must be at least 1 retrieval; got 0."
    ),
}


test_refused_configs = refusals(REFUSED)
