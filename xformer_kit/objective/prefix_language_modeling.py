"""Prefix language modelling: the tokens after a fully visible prefix are predicted."""

from typing import Any

import numpy as np
import torch

from xformer_kit.objective import OBJECTIVES, Example, blank_ids, causal_mask_fixes, future_fault
from xformer_kit.objective.language_modeling import NextToken
from xformer_kit.tensors.tokens import Tokens


@OBJECTIVES.register("prefix_language_modeling", also_called=("prefix_lm", "plm"))
class PrefixLanguageModeling(NextToken):
    """-sum log p(token | the tokens before it) in nats over the tokens after a random prefix, which
    mask=prefix shows to all tokens (Raffel et al., 2020, JMLR 21(140), section 3.2.1; Liu et
    al., 2018, arXiv:1801.10198).

    The prefix has 1 to n - 1 of an example's n tokens, drawn uniformly in every epoch.
    """

    masks = {"decoder": "prefix"}

    @classmethod
    def cannot(cls, options, context):
        if context.mask.sees_future:
            fixes = causal_mask_fixes(context, "prefix")
            yield future_fault(context, "prefix_language_modeling", fixes)

    def example(self, example: Example, draw: torch.Generator) -> Example:
        tokens = example["tokens"]
        real = example.get("tokens.real", np.ones(len(tokens), dtype=bool))
        split = int(torch.randint(1, int(real.sum()), (), generator=draw))
        prefix = np.arange(len(tokens)) < split
        labels = np.where(real & ~prefix, tokens, -1)
        return {**example, "tokens.prefix": prefix, "labels": labels}

    def blank(self, rows: int, length: int, device: Any = None) -> dict[str, Any]:
        ids = blank_ids(rows, length + 1, device)
        return {"tokens": Tokens(ids=ids, prefix=ids.bool()), "labels": ids}
