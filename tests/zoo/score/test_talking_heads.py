"""score talking_heads: heads are mixed."""

import pytest
import torch
from refusing import refused
from torch.testing import assert_close

from xformer_kit.attention import SCORES

HEADS = 3


def made(node):
    score = SCORES.create(node, heads=HEADS).double().eval()
    with torch.no_grad():
        for i, p in enumerate(score.parameters()):
            p.add_(
                torch.randn(p.shape, generator=torch.Generator().manual_seed(i)).double(), alpha=0.5
            )
    return score


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


SCORED = drawn(2, HEADS, 5, 7) * 2

SEEN = torch.arange(7) <= torch.arange(5)[:, None] + 1

SEEN = SEEN & (torch.arange(5) != 2)[:, None]  # the third query sees nothing


def test_scaled_talking_heads_are_those_of_x_transformers():
    attend = pytest.importorskip("x_transformers.attend").Attend(
        heads=HEADS, scale=1.0, pre_scale_post_talking_heads=True
    )
    score = made({"name": "talking_heads", "logits": False, "probabilities": False, "scaled": True})
    with torch.no_grad():
        attend.pre_scale_post_talking_heads.weight.copy_(score.factors.T[..., None, None])
    eye = torch.eye(7, dtype=torch.float64).expand(2, HEADS, 7, 7)
    assert_close(attend.double()(SCORED, eye, eye)[0], score(SCORED, None), atol=1e-6, rtol=1e-6)


def test_talking_heads_mix_before_and_behind():
    score = made({"name": "talking_heads"})
    mixed = torch.stack(
        [sum(score.logits[i, j] * SCORED[:, i] for i in range(HEADS)) for j in range(HEADS)], 1
    )
    weights = mixed.softmax(-1)
    expected = [
        sum(score.probabilities[i, j] * weights[:, i] for i in range(HEADS)) for j in range(HEADS)
    ]
    assert_close(score(SCORED, None), torch.stack(expected, 1))
    alone = SCORES.create({"name": "talking_heads", "probabilities": False}, heads=HEADS)
    assert_close(
        alone.double()(SCORED, SEEN), SCORES.create("softmax", heads=HEADS)(SCORED, SEEN)
    )  # starts as softmax


KNOWN = (
    "Known: cog, entmax, gumbel, hard, inverted, relu2, residual, selective, sigmoid, softmax,"
    " talking_heads, top_k."
)

REFUSED = {
    ("attn.score.name=talking_heads attn.score.logits=false attn.score.probabilities=false"): (
        "attn.score.logits: mixes nothing where probabilities=false and scaled=false too. Set one"
        " of them, or attn.score.name=softmax."
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(words):
    assert refused(words) == [REFUSED[words]]
