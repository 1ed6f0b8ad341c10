"""score relu2: squares of positive scores."""

import torch

from tests.scores import random_score


def test_relu2_worked_out():
    scores = torch.tensor([[[[3.0, -1.0, 1.0, 5.0]]]], dtype=torch.float64)
    assert random_score({"name": "relu2"})(
        scores, torch.tensor([True, True, True, False])
    ).tolist() == [[[[3, 0, 1 / 3, 0]]]]
