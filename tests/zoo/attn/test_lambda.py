"""attn lambda: equal to its equation, written out token by token."""

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.attentions import HEADS, SHORT, WIDE, model_of, past, short_layer
from xformer_kit.tensors.tokens import Tokens


@torch.no_grad()
@pytest.mark.parametrize("scope", [None, 2])
@pytest.mark.parametrize("mask", ["causal", "full"])
def test_lambda_by_its_equations(mask, scope):
    """The matrix of each token is formed, and applied to its queries."""
    model = "decoder" if mask == "causal" else "encoder"
    attn, x, out = short_layer(
        {"name": "lambda", "v_head_dim": 7, "scope": scope, "bias": True}, model=model, mask=mask
    )
    assert attn.places.shape == ((2 * 2 if scope else 2 * 28) + 1, WIDE)
    reach = scope or 28
    for b, n in ((0, 0), (1, 4), (0, 7)):
        seen = list(past(n, mask == "causal"))
        content = attn.k(x[b, seen]).softmax(0)  # over tokens, channel by channel
        function = torch.zeros(WIDE, 7, dtype=torch.float64)
        for at, m in enumerate(seen):
            place = attn.places[n - m + reach] if abs(n - m) <= reach else 0
            function += torch.outer(content[at] + place, attn.v(x[b, m]))
        assert_close(out[b, n], attn.o((attn.q(x[b, n]).view(HEADS, WIDE) @ function).flatten()))


@torch.no_grad()
def test_a_key_that_is_not_seen_and_far_larger_does_no_harm():
    """In fp32 the visible keys are lost in sums with it; the numbers stay finite."""
    model = model_of({"name": "lambda"}, position="none").float()
    attn = model.stack.blocks[0].attn
    attn.k.register_forward_hook(
        lambda _, args, out: out + 1e4 * (torch.arange(out.shape[1]) == 7)[:, None]
    )
    assert model(SHORT).isfinite().all()


@pytest.mark.parametrize("padded", [False, True])
def test_keys_that_grow_along_the_text_are_exact_in_fp32(padded):
    """The first tokens see only keys 108 below the largest, in pairs that are near to each other.
    In float64 the sums are those of `test_lambda_by_its_equations`.
    """
    real, found = torch.arange(8) >= torch.tensor([[0], [2]]) if padded else None, []
    for dtype in (torch.float64, torch.float32):
        model = model_of({"name": "lambda"}, position="none").to(dtype)
        attn, kept = model.stack.blocks[0].attn, []
        sign = torch.tensor([1.0, -1.0]).repeat(WIDE // 2)  # channels that rise and that fall
        attn.k.register_forward_hook(
            lambda _, args, out, sign=sign: (
                out + (36.0 * (torch.arange(8)[:, None] // 2) * sign).to(out)
            )
        )
        attn.register_forward_hook(lambda _, args, out, kept=kept: kept.append(out))
        model.hidden(Tokens(ids=SHORT, real=real))
        out = kept[0] if real is None else kept[0][real]
        out.square().sum().backward()
        found.append([out.detach(), attn.q.weight.grad, attn.k.weight.grad, attn.v.weight.grad])
    for exact, mine in zip(*found, strict=True):
        assert_close(mine.double(), exact, rtol=1e-4, atol=1e-5 * exact.abs().max().item())


REFUSED = {
    "attn=lambda position=rotary": (
        "attn: lambda has no score of two tokens, into which position 'rotary' enters, and places"
        " of its own. Choose position=none, learned or sinusoidal."
    ),
    "attn=lambda position=none attn.scope=-1": "attn.scope: must be at least 0 token; got -1.",
}


test_refused_configs = refusals(REFUSED)
