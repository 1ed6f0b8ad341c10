"""score gumbel: one key, drawn."""

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.scores import SCORED, drawn, random_score


def test_gumbel_draws_a_key_with_the_probabilities_of_softmax_only_in_training():
    scores = torch.tensor([2.0, 1.0, 0.0, -1.0]).log_softmax(-1).expand(1, 1, 40_000, 4)
    score = random_score({"name": "gumbel", "temperature": 0.5})
    assert torch.equal(score(scores, None)[0, 0, 0], torch.tensor([1.0, 0, 0, 0]))
    torch.manual_seed(0)
    drawn = score.train()(scores, torch.tensor([True, True, True, False]))
    assert_close(drawn.sum(-1), torch.ones(1, 1, 40_000))
    assert set(drawn.round(decimals=4).unique().tolist()) == {0.0, 1.0}
    assert_close(
        drawn.mean(-2)[0, 0],
        torch.tensor([*torch.tensor([2.0, 1.0, 0.0]).softmax(-1), 0]),
        atol=0.01,
        rtol=0,
    )


@pytest.mark.parametrize("hard", [True, False])
def test_gumbel_is_that_of_torch_with_the_same_draw(hard):
    grads = []
    for of in (
        random_score({"name": "gumbel", "temperature": 0.7, "hard": hard}).train(),
        lambda x, seen: torch.nn.functional.gumbel_softmax(x, 0.7, hard),
    ):
        torch.manual_seed(5)
        x = SCORED.clone().requires_grad_()
        weights = of(x, None)
        grads.append((weights.detach(), *torch.autograd.grad((weights * drawn(*x.shape)).sum(), x)))
    for ours, theirs in zip(*grads, strict=True):
        assert_close(ours, theirs)


REFUSED = {
    "attn.score.name=gumbel attn.score.temperature=0": (
        "attn.score.temperature: must be above 0; got 0."
    ),
}


test_refused_configs = refusals(REFUSED)
