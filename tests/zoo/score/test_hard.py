"""score hard: the largest score has all weight."""

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


def test_hard_takes_the_largest_and_learns_as_softmax_does():
    scores, g = SCORED.clone().requires_grad_(), drawn(*SCORED.shape)
    weights = made({"name": "hard"})(scores, None)
    assert torch.equal(weights, torch.nn.functional.one_hot(SCORED.argmax(-1), 7).double())
    (ours,) = torch.autograd.grad(weights, scores, g)
    assert_close(ours, torch.autograd.grad(scores.softmax(-1), scores, g)[0])


def test_hard_finds_the_largest_also_where_it_is_compiled_in_half_precision():
    score = SCORES.create("hard", heads=HEADS)

    @torch.compile
    def weights(q, k):
        return score(q @ k.transpose(-1, -2) * 0.37, None)  # numbers between bf16's

    q, k = drawn(1, HEADS, 100, 8).bfloat16(), drawn(1, HEADS, 90, 8).bfloat16()
    assert_close(weights(q, k).float().sum(-1), torch.ones(1, HEADS, 100), atol=0.01, rtol=0)


KNOWN = (
    "Known: cog, entmax, gumbel, hard, inverted, relu2, residual, selective, sigmoid, softmax,"
    " talking_heads, top_k."
)

REFUSED = {
    "attn.score.name=hard attn.score.k=3": (
        "attn.score.k: score 'hard' has no option 'k'. It has: none. Try attn.score=top_k."
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(words):
    assert refused(words) == [REFUSED[words]]
