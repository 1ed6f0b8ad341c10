"""Residual scores: the scores of the previous layer are added."""

from functools import partial
from typing import Any

from torch import Tensor

from xformer_kit.attention import SCORES, Score
from xformer_kit.registry import Unused
from xformer_kit.tensors.tokens import AttentionContext


@SCORES.register("residual", also_called=("realformer", "residual_attention"))
class Residual(Score):
    """softmax(s + p), with p the s + p of the previous layer.

    Source: RealFormer (He et al., 2020, arXiv:2012.11747, section 3.2). The previous layer is the
    last one with this score and the same number of heads and keys; self- and cross-attentions have
    separate scores. The first has no p. Scores include the position's bias, before masking, as in
    x-transformers.
    """

    variants: list[dict[str, Any]] = [{}]
    cross_layer = True

    @classmethod
    def cannot(cls, options, context):
        if "score" not in context.exchanged_tensors:
            one_layer = context.layers == 1
            yield Unused(
                "name",
                "'residual' adds the scores of an earlier attention with as many heads and keys,"
                " and there is none, nor a later one that takes these",
                fix="Try model.layers=2, or softmax." if one_layer else "Set it to softmax.",
            )

    def of(self, context, cache):
        return partial(self, context=context)

    def forward(
        self, scores: Tensor, seen: Tensor | None, context: AttentionContext | None = None
    ) -> Tensor:
        if context is not None:
            key = f"scores {scores.shape[1]} {scores.shape[-1]} {'source' * context.cross}"
            state = {} if context.cross_layer_state is None else context.cross_layer_state
            scores = state[key] = scores + state[key] if key in state else scores
        return super().forward(scores, seen)

    def weights(self, scores):
        return scores.softmax(-1)
