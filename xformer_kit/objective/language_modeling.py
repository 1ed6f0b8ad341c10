"""Predict the next token of a text."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from xformer_kit.objective import OBJECTIVES, Objective
from xformer_kit.registry import Context


@OBJECTIVES.register("language_modeling", also_called=("lm", "causal_lm", "clm", "next_token", "gpt"))
class LanguageModeling(Objective):
    """-sum log p(token | the tokens before it) in nats (Bengio et al., 2003, JMLR 3:1137-1155, section 2).

    batch["tokens"]: Tokens of (batch, seq + 1); each of the first `seq` predicts the one after it, unless that one is
    padding or starts another document.
    """

    laws = ("causality", "cache")

    @classmethod
    def cannot(cls, context: Context) -> str | None:
        if not context.facts.get("mask", {}).get("sees_future"):
            return None
        return (
            f"mask '{context.names['mask']}' sees the future, so language_modeling would read the token that it has to "
            "predict. Use mask=causal or mask=sliding_window."
        )

    def loss(self, model: Any, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        seen, target = batch["tokens"].shifted()
        hidden, report = model.hidden(seen)
        return model.head(hidden, target), (target >= 0).sum(), report
