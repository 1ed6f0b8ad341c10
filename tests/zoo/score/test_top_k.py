"""score top_k: softmax of the largest scores."""

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close

from tests.scores import HEADS, SCORED, SEEN, random_score
from xformer_kit.attention import SCORES


def test_the_largest_scores_worked_out():
    seen, half = torch.tensor([True] * 4 + [False]), [[[[0.5, 0.5, 0, 0, 0]]]]
    row = torch.tensor([[[[2.0, 2.0, 1.0, 0.0, 9.0]]]], dtype=torch.float64)
    assert random_score({"name": "top_k", "k": 2})(row, seen).tolist() == half
    assert (
        random_score({"name": "hard"})(row, seen).tolist() == half
    )  # of two that are largest, neither comes first
    assert random_score({"name": "hard"})(row, None).tolist() == [[[[0, 0, 0, 0, 1]]]]
    tied = random_score({"name": "top_k", "k": 3})(
        torch.tensor([3.0, 1, 1, 1, 0]).double().view(1, 1, 1, 5), None
    )
    assert (tied > 0).tolist() == [
        [[[True, True, True, True, False]]]
    ]  # what equals the third stays


@pytest.mark.parametrize("k", [2, 3, 5])
def test_top_k_is_softmax_of_the_k_largest(k):
    weights = random_score({"name": "top_k", "k": k})(SCORED, None)
    high = SCORED.topk(k, -1)
    assert_close(weights.gather(-1, high.indices), high.values.softmax(-1))
    assert ((weights > 0).sum(-1) == k).all()


def test_as_many_keys_as_are_seen_or_more_is_softmax():
    soft = SCORES.create("softmax", heads=HEADS)(SCORED, SEEN)
    assert_close(random_score({"name": "top_k", "k": 7})(SCORED, SEEN), soft)
    assert_close(random_score({"name": "top_k", "k": 100})(SCORED, SEEN), soft)


REFUSED = {
    "attn.score.name=top_k attn.score.k=1": (
        "attn.score.k: must be at least 2 keys; got 1. A single key always has weight 1, so"
        " queries and keys would have no gradient; attn.score.name=hard has the gradient of"
        " softmax."
    ),
}


test_refused_configs = refusals(REFUSED)
