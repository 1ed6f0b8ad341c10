"""Predict how a text goes on, from a beginning that is seen whole."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from xformer_kit.model.tokens import Tokens
from xformer_kit.objective import OBJECTIVES, hiding
from xformer_kit.objective.language_modeling import LanguageModeling
from xformer_kit.registry import Context


@OBJECTIVES.register("prefix_language_modeling", also_called=("prefix_lm", "plm"))
class PrefixLanguageModeling(LanguageModeling):
    """-sum log p(token | the tokens before it) in nats over what follows a random prefix, of which
    mask=prefix lets every token see all (Raffel et al., 2020, JMLR 21(140), section 3.2.1; Liu et
    al., 2018, arXiv:1801.10198).

    The prefix has 1 to n - 1 of an example's n tokens, each length as likely; another one in every
    epoch.
    """

    masks: ClassVar[Mapping[str, str]] = {"decoder": "prefix"}
    reads = ("text",)
    documents = False
    future = False

    def __init__(
        self,
        *,
        # share of the target that is spread over the vocabulary, in training
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,  # coefficient of log^2 Z, in training; PaLM has 1e-4
    ):
        super().__init__(label_smoothing=label_smoothing, z_loss=z_loss)

    @classmethod
    def cannot(cls, context: Context) -> str | None:
        if not context.mask.sees_future:
            return None
        return (
            f"mask '{context.names['mask']}' sees the future, so prefix_language_modeling would"
            f" read the token that it has to predict. Use {hiding(context, 'prefix')}."
        )

    def example(self, example: Mapping[str, Any], draw: torch.Generator) -> Mapping[str, Any]:
        tokens = example["tokens"]
        at, real = (
            np.arange(len(tokens)),
            example.get("tokens.real", np.ones(len(tokens), dtype=bool)),
        )
        split = int(torch.randint(1, int(real.sum()), (), generator=draw))
        asked = (at >= split) & real
        return {**example, "tokens.prefix": at < split, "labels": np.where(asked, tokens, -1)}

    def blank(self, rows: int, length: int, device: Any = None) -> dict[str, Any]:
        ids = torch.zeros(rows, length + 1, dtype=torch.int64, device=device)
        return {"tokens": Tokens(ids=ids, prefix=ids.bool()), "labels": ids}
