"""score hard: the largest score has all weight."""

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.scores import HEADS, SCORED, drawn, random_score
from xformer_kit.attention import SCORES


def test_hard_takes_the_largest_and_learns_as_softmax_does():
    scores, g = SCORED.clone().requires_grad_(), drawn(*SCORED.shape)
    weights = random_score({"name": "hard"})(scores, None)
    assert torch.equal(weights, torch.nn.functional.one_hot(SCORED.argmax(-1), 7).double())
    (ours,) = torch.autograd.grad(weights, scores, g)
    assert_close(ours, torch.autograd.grad(scores.softmax(-1), scores, g)[0])


@pytest.mark.extended
def test_hard_finds_the_largest_also_where_it_is_compiled_in_half_precision():
    score = SCORES.create("hard", heads=HEADS)

    @torch.compile
    def weights(q, k):
        return score(q @ k.transpose(-1, -2) * 0.37, None)  # numbers between bf16's

    q, k = drawn(1, HEADS, 100, 8).bfloat16(), drawn(1, HEADS, 90, 8).bfloat16()
    assert_close(weights(q, k).float().sum(-1), torch.ones(1, HEADS, 100), atol=0.01, rtol=0)


REFUSED = {
    "attn.score.name=hard attn.score.k=3": (
        "attn.score.k: score 'hard' has no option 'k'. It has no options. Try attn.score=top_k."
    ),
}


test_refused_configs = refusals(REFUSED)
