"""Weights for which the queries of a key compete."""

from functools import partial

from torch import Tensor

from xformer_kit.attention import SCORES, Score
from xformer_kit.registry import Fault, above


@SCORES.register("inverted", also_called=("slot", "slot_attention", "inverted_attention"))
class Inverted(Score):
    """w_ij / (sum_j w_ij + eps) with w_ij = exp(s_ij) / sum_l exp(s_lj): queries compete for each
    key.

    Weights are then normalised per query (slot attention: Locatello et al., 2020,
    arXiv:2006.15055; in transformers: Wu et al., 2023, openreview.net/forum?id=WgQZNoQ5AB). Only
    queries that see a key compete for it; padding does not.
    """

    breaks = {
        "causality": "queries compete for keys, those of later tokens too",
        "cache": "a new token changes the weights of all tokens before it",
    }

    def __init__(
        self,
        *,
        eps: float = 1e-8,  # added to the sum of a row
    ):
        super().__init__()
        self.eps = eps

    @classmethod
    def check(cls, options, context):
        yield from above(options, eps=0)

    @classmethod
    def cannot(cls, options, context):
        if context.cross:
            yield Fault(
                "",
                "'inverted' lets queries compete for keys, so that across two stacks the output of"
                " a token would depend on later ones, and on other documents",
                fix="Choose another score in model.decoder.cross.",
            )

    def of(self, context, cache):
        return partial(self, real=context.query.real)

    def forward(self, scores: Tensor, seen: Tensor | None, real: Tensor | None = None) -> Tensor:
        if real is not None:
            real_queries = real[:, None, :, None]
            seen = real_queries if seen is None else seen & real_queries
        if seen is None:
            return self.normalised(scores.softmax(-2))
        # A key that no query sees is not masked, to keep weights finite.
        unseen = ~seen.any(-2, keepdim=True)
        shares = scores.masked_fill(~(seen | unseen), -float("inf")).softmax(-2)
        return self.normalised(shares.masked_fill(~seen, 0))

    def normalised(self, shares: Tensor) -> Tensor:
        """Weights that sum to 1 for each query, from the shares that it has of each key."""
        return shares / (shares.sum(-1, keepdim=True) + self.eps)
