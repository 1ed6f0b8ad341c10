"""score cog: weights of either sign."""

import torch
from torch.testing import assert_close

from tests.scores import SCORED, random_score


def test_cog_is_softmax_of_sizes_with_the_scores_signs():
    weights = random_score({"name": "cog"})(SCORED, None)
    assert_close(weights, SCORED.sign() * SCORED.abs().softmax(-1))
    assert_close(weights.abs().sum(-1), torch.ones_like(weights[..., 0]))
    assert (weights < 0).any()
    row = torch.tensor([[[[-1.0, 1.0, 9.0]]]], dtype=torch.float64)
    assert random_score({"name": "cog"})(row, torch.tensor([True, True, False])).tolist() == [
        [[[-0.5, 0.5, 0]]]
    ]
