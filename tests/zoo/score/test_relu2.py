"""score relu2: squares of positive scores."""

import torch

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


def test_relu2_by_eye():
    scores = torch.tensor([[[[3.0, -1.0, 1.0, 5.0]]]], dtype=torch.float64)
    assert made({"name": "relu2"})(scores, torch.tensor([True, True, True, False])).tolist() == [
        [[[3, 0, 1 / 3, 0]]]
    ]
