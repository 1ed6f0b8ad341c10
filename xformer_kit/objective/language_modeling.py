"""Predict the next token of a text."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from xformer_kit.objective import OBJECTIVES, Objective
from xformer_kit.registry import Context
from xformer_kit.tokens import Tokens


@OBJECTIVES.register("language_modeling", also_called=("lm", "causal_lm", "clm", "next_token", "gpt"))
class LanguageModeling(Objective):
    """-sum log p(token | the tokens before it) in nats (Bengio et al., 2003, JMLR 3:1137-1155, section 2).

    batch["tokens"]: Tokens of (batch, seq + 1); each of the first `seq` predicts the one after it, unless that one is
    padding or starts another document. batch["labels"], where there are any: the same ids, -1 where nothing is asked.
    """

    reads = ("text", "labelled")
    laws = ("causality", "cache")

    @classmethod
    def cannot(cls, context: Context) -> str | None:
        if context.facts.get("cross") or not context.facts.get("mask", {}).get("sees_future"):
            return None
        return (
            f"mask '{context.names['mask']}' sees the future, so language_modeling would read the token that it has to "
            "predict. Use mask=causal or mask=sliding_window."
        )

    def size(self, batch: Mapping[str, Any]) -> int | Tensor:
        tokens = batch["tokens"]
        return tokens.ids[:, 1:].numel() if tokens.real is None else tokens.real[:, 1:].sum()

    def blank(self, rows: int, length: int, device: Any = None) -> dict[str, Any]:
        return {"tokens": Tokens(ids=torch.zeros(rows, length + 1, dtype=torch.int64, device=device))}

    def loss(self, model: Any, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        seen, target = batch["tokens"].shifted()
        if "labels" in batch:  # of a corpus that asks for some tokens only
            target = batch["labels"][:, 1:]
        hidden, report = model.hidden(seen)
        return model.head(hidden, target), (target >= 0).sum(), report
