"""A metric: python train.py components=[docs/examples/reciprocal_rank.py]
metrics.reciprocal_rank={}
"""

import torch
from torchmetrics import Metric

from xformer_kit.metrics import METRICS


@METRICS.register("reciprocal_rank")
class ReciprocalRank(Metric):
    """Mean of 1 / rank of the target among the tokens, from 1 (Voorhees, 1999, TREC-8)."""

    higher_is_better = True

    def __init__(self):
        super().__init__()
        for name in ("total", "count"):
            self.add_state(name, torch.zeros(()), dist_reduce_fx="sum")

    def update(self, logits, target):
        rank = 1 + (logits > logits.gather(1, target[:, None])).sum(1)
        self.total += (1 / rank).sum()
        self.count += len(target)

    def compute(self):
        return self.total / self.count
