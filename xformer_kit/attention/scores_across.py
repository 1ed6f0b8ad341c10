"""Scores that meet others than those of their row: of the layer before, or of the same key."""

from functools import partial

from torch import Tensor

from xformer_kit.attention.score import SCORES, Score
from xformer_kit.model.tokens import View
from xformer_kit.registry import above


@SCORES.register("residual", also_called=("realformer", "residual_attention"))
class Residual(Score):
    """softmax(s + p), with p the s + p of the layer before.

    Source: RealFormer (He et al., 2020, arXiv:2012.11747, section 3.2). That layer is the last one
    with this score, as many heads and as many learned keys, of the same sublayer: attentions to a
    source have scores of their own. The first has no p. Scores have their position's bias in them,
    before a mask hides any, as in x-transformers.
    """

    across = True

    @classmethod
    def vain(cls, options, context):
        if "score" not in context.paired:
            ways = "Try model.layers=2, or softmax" if context.layers == 1 else "Set it to softmax"
            yield (
                "name",
                (
                    "'residual' adds the scores of an earlier attention with as many heads and"
                    f" learned keys, and there is none, nor a later one that takes these. {ways}"
                ),
            )

    @classmethod
    def beyond(cls, options):
        return "residual"

    def __init__(self):
        super().__init__()

    def of(self, view, cache):
        return partial(self, view=view)

    def forward(self, scores: Tensor, seen: Tensor | None, view: View | None = None) -> Tensor:
        if view is not None:
            key = f"scores {scores.shape[1]} {scores.shape[-1]} {'source' * view.cross}"
            memo = view.memo if view.memo is not None else {}
            scores = memo[key] = scores + memo[key] if key in memo else scores
        return super().forward(scores, seen)

    def weights(self, scores):
        return scores.softmax(-1)


@SCORES.register("inverted", also_called=("slot", "slot_attention", "inverted_attention"))
class Inverted(Score):
    """w_ij / (sum_j w_ij + eps) with w_ij = exp(s_ij) / sum_l exp(s_lj): queries compete for each
    key.

    Then each is given the mean of what it won (slot attention: Locatello et al., 2020,
    arXiv:2006.15055; in transformers: Wu et al., 2023, openreview.net/forum?id=WgQZNoQ5AB). A key
    is competed for by the queries that see it; padding does not compete.
    """

    breaks = {
        "causality": "queries compete for keys, those of later tokens too",
        "cache": "a new token competes for keys with those before it, which have been answered",
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
    def beyond(cls, options):
        return "inverted"

    @classmethod
    def cannot(cls, context):
        if context.options["attn"].get("memory"):
            return (
                "score 'inverted' lets queries compete for keys, and for a learned key those of all"
                " texts would compete; choose attn.memory=0, or attn.score=softmax"
            )
        if context.cross:
            return (
                "score 'inverted' lets queries compete for keys, so that across two stacks tokens"
                " would know of later ones, and of other documents, through what is left of the"
                " source; choose another score in model.decoder.cross"
            )

    def of(self, view, cache):
        return partial(self, real=view.query.real)

    def forward(self, scores: Tensor, seen: Tensor | None, real: Tensor | None = None) -> Tensor:
        if real is not None:
            able = real[:, None, :, None]
            seen = able if seen is None else seen & able
        if seen is None:
            return self.shared(scores.softmax(-2))
        alone = ~seen.any(
            -2, keepdim=True
        )  # a key that nobody sees is left whole for finite weights
        won = scores.masked_fill(~(seen | alone), -float("inf")).softmax(-2)
        return self.shared(won.masked_fill(~seen, 0))

    def shared(self, won: Tensor) -> Tensor:
        return won / (won.sum(-1, keepdim=True) + self.eps)
