"""Selective attention: each query lowers the scores of some keys for all later queries."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.attention import SCORES, KeyValueCache, Score, at_least_fp32
from xformer_kit.registry import Fault, config_error
from xformer_kit.tensors.tokens import AttentionContext, Tokens


class SelectiveCache(KeyValueCache):
    """Keys and values, and the sum that earlier queries subtracted from each key, (rows, length).
    The newest token's part of the sum cannot be removed.
    """

    can_rewind = False
    subtracted: Tensor | None = None

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        self.subtracted = None if self.subtracted is None else self.subtracted[rows]

    def rewind(self, n: int) -> None:
        if n:
            raise config_error(
                "rewind",
                "attn.score 'selective' stores only the sum of what all queries subtracted",
                got=n,
                fix="Begin again with the prompt.",
            )

    @property
    def bytes(self) -> int:
        return super().bytes + (0 if self.subtracted is None else self.subtracted.nbytes)


@SCORES.register("selective", also_called=("selective_attention",))
class Selective(Score):
    """softmax(s - F), where F_ij is what the queries before i subtract from the scores of key j.

    F_ij is the sum of relu(s_lj) of the first head over the queries l before i, except for j = l
    and for the first token of a text: each token selects earlier tokens that are no longer needed
    (Leviathan et al., 2024, arXiv:2410.02703). All heads use the same F. Padding subtracts nothing.
    """

    breaks = {"symmetry": "a token lowers the scores only of later queries"}
    variants: list[dict[str, Any]] = [{}]
    cache = SelectiveCache

    def __init__(
        self,
        *,
        keep_first: bool = True,  # whether nothing is subtracted from the first token of a text
    ):
        super().__init__()
        self.keep_first = keep_first

    @classmethod
    def cannot(cls, options, context):
        if context.cross:
            yield Fault(
                "",
                "'selective' lowers the scores of earlier tokens for later queries, and the tokens"
                " of a source are not before any query",
                fix="Choose another score in model.decoder.cross.",
            )

    def of(self, context, cache):
        return partial(self, context=context, cache=cache)

    def forward(
        self,
        scores: Tensor,
        seen: Tensor | None,
        context: AttentionContext | None = None,
        cache: SelectiveCache | None = None,
    ) -> Tensor:
        t, s = scores.shape[-2:]
        first = scores[:, 0]
        subtracted = at_least_fp32(first).relu()  # (b, t, s)
        slot = torch.arange(s, device=scores.device)
        hidden = slot == slot[s - t :, None]
        if seen is not None:
            hidden = hidden | ~seen.expand_as(scores)[:, 0]
        if context is not None and context.query.real is not None:
            hidden = hidden | ~context.query.real[..., None]
        if self.keep_first:
            first_token = slot == 0 if context is None else is_first_token(context.key)[:, None]
            hidden = hidden | first_token
        total = subtracted.masked_fill(hidden, 0).cumsum(-2)
        before = F.pad(total[:, :-1], (0, 0, 1, 0))
        if cache is not None:
            past = cache.subtracted
            if past is None:
                past = torch.zeros_like(total[:, 0])
            past = F.pad(past, (0, s - past.shape[-1]))
            cache.subtracted, before = total[:, -1] + past, before + past[:, None]
        return super().forward(at_least_fp32(scores) - before[:, None], seen).to(scores.dtype)

    def weights(self, scores):
        return scores.softmax(-1)


def is_first_token(tokens: Tokens) -> Tensor:
    """Whether a token is the first of its text, (b, t), also if a user passes positions."""
    return tokens._replace(position=None).with_positions().position == 0  # type: ignore[operator]
