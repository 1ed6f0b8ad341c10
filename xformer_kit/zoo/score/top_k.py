"""Softmax of the largest scores."""

from xformer_kit.attention import SCORES, Score
from xformer_kit.registry import Fault
from xformer_kit.zoo.score._largest import largest


@SCORES.register("top_k", also_called=("topk", "sparse_topk", "explicit_sparse"))
class TopKScore(Score):
    """softmax of the k largest scores of a row; the others have no weight (Zhao et al., 2019,
    arXiv:1912.11637). A row that sees k keys or fewer is softmax.
    """

    def __init__(
        self,
        *,
        k: int = 8,  # keys that have weight, at least 2
    ):
        super().__init__()
        self.k = k

    @classmethod
    def check(cls, options, context):
        if options.k < 2:
            yield Fault(
                "k",
                "must be at least 2 keys",
                got=options.k,
                fix=(
                    "A single key always has weight 1, so queries and keys would have no gradient;"
                    " attn.score.name=hard has the gradient of softmax."
                ),
            )

    def weights(self, scores):
        return scores.masked_fill(~largest(scores, self.k), -float("inf")).softmax(-1)
