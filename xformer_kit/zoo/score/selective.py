"""Scores that tokens take away from others: what one query does not need, later ones see less
of.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.attention import SCORES, KeyValueCache, Score
from xformer_kit.model.tokens import AttentionContext, Tokens
from xformer_kit.registry import Fault, config_error


class Keys(KeyValueCache):
    """Keys and values, and what earlier queries took away from each key, (rows, length): a sum, out
    of which the newest cannot be told.
    """

    can_rewind = False
    taken: Tensor | None = None

    def select(self, rows: Tensor) -> None:
        super().select(rows)
        self.taken = None if self.taken is None else self.taken[rows]

    def rewind(self, n: int) -> None:
        if n:
            raise config_error(
                "rewind",
                "attn.score 'selective' keeps what all queries took away from a key as one sum",
                got=n,
                fix="Begin again with the prompt.",
            )

    @property
    def bytes(self) -> int:
        return super().bytes + (
            0 if self.taken is None else self.taken.numel() * self.taken.element_size()
        )


@SCORES.register("selective", also_called=("selective_attention",))
class Selective(Score):
    """softmax(s - F), where F_ij says how little query i needs key j after what queries before it
    chose.

    F_ij is the sum of relu(s_lj) of the first head over the queries l before i, but for j = l and
    for the first token of a text: a token says of those before it which are no longer needed
    (Leviathan et al., 2024, arXiv:2410.02703). All heads see the same F. Padding takes nothing
    away.
    """

    breaks = {"symmetry": "what a token takes away is taken from those that come later"}
    variants: list[dict[str, Any]] = [{}]
    cache = Keys

    def __init__(
        self,
        *,
        keep_first: bool = True,  # whether nothing is taken away from the first token of a text
    ):
        super().__init__()
        self.keep_first = keep_first

    @classmethod
    def describe(cls, options):
        return "selective"

    @classmethod
    def cannot(cls, options, context):
        if context.cross:
            yield Fault(
                "",
                "'selective' lets tokens of one text say which of those before them later"
                " ones need, and the tokens of a source do not stand before any",
                fix="Choose another score in model.decoder.cross.",
            )

    def of(self, context, cache):
        return partial(self, context=context, cache=cache)

    def forward(
        self,
        scores: Tensor,
        seen: Tensor | None,
        context: AttentionContext | None = None,
        cache: Keys | None = None,
    ) -> Tensor:
        t, s = scores.shape[-2:]
        first = scores[:, 0]
        taken = (first if first.dtype == torch.float64 else first.float()).relu()  # (b, t, s)
        slot = torch.arange(s, device=scores.device)
        hidden = slot == slot[s - t :, None]
        if seen is not None:
            hidden = hidden | ~seen.expand_as(scores)[:, 0]
        if context is not None and context.query.real is not None:
            hidden = hidden | ~context.query.real[..., None]
        if self.keep_first:
            hidden = hidden | (slot == 0 if context is None else firsts(context.key)[:, None])
        total = taken.masked_fill(hidden, 0).cumsum(-2)
        before = F.pad(total[:, :-1], (0, 0, 1, 0))
        if cache is not None:
            past = total.new_zeros(total[:, 0].shape) if cache.taken is None else cache.taken
            past = F.pad(past, (0, s - past.shape[-1]))
            cache.taken, before = total[:, -1] + past, before + past[:, None]
        return super().forward(scores - before[:, None].to(scores.dtype), seen)

    def weights(self, scores):
        return scores.softmax(-1)


def firsts(tokens: Tokens) -> Tensor:
    """Where a text begins, which its position does not say where a user gives it, (b, t)."""
    return tokens._replace(position=None).with_positions().position == 0  # type: ignore[operator]
