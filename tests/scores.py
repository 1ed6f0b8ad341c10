"""Scores with random parameters, and the numbers that they are applied to."""

import torch

from xformer_kit.attention import SCORES

HEADS = 3


def random_score(node):
    """Returns a score in float64 whose parameters are changed randomly."""
    score = SCORES.create(node, heads=HEADS).double().eval()
    with torch.no_grad():
        for i, p in enumerate(score.parameters()):
            p.add_(
                torch.randn(p.shape, generator=torch.Generator().manual_seed(i)).double(), alpha=0.5
            )
    return score


def drawn(*shape):
    """Returns standard normal numbers, the same in each call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


SCORED = drawn(2, HEADS, 5, 7) * 2
SEEN = torch.arange(7) <= torch.arange(5)[:, None] + 1
SEEN = SEEN & (torch.arange(5) != 2)[:, None]  # the third query sees nothing
KNOWN = (
    "Known: cog, entmax, gumbel, hard, inverted, relu2, residual, selective, sigmoid, softmax,"
    " talking_heads, top_k."
)
