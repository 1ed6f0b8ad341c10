"""Contrastive search: of the likeliest tokens the one that is least similar to the text so far."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.generate.choosing import Choice
from xformer_kit.generate.processors import NEVER
from xformer_kit.generate.reading import Prompt, Reading, generating
from xformer_kit.model.tokens import Tokens


@torch.inference_mode()
def contrast(model: Any, prompt: Prompt, choice: Choice) -> Iterator[Tensor]:
    """The next tokens (b,), one after another: of the top_k likeliest the v with the largest

        (1 - alpha) p(v | x) - alpha max_j cos(h_v, h_xj)          (Su et al., 2022,
        arXiv:2202.06417, eq. 5)

    h is the input of the head, h_v after reading v, and j runs over the real tokens of the prompt
    and of the new text; of a model of two stacks only those of the target. Nothing is
    drawn. Constraints on the text act on p before the candidates are taken. The cache holds top_k
    copies of each row: all candidates are read in one step, and that of the one that is taken is
    kept.
    """
    how, many = choice.how, choice.how.max_new_tokens
    count = min(how.top_k, model.vocab_size)
    with generating(model, many):
        reading = Reading(model, prompt, many)
        hidden = reading.hidden(prompt.tokens)
        read = Directions(hidden, prompt.tokens.real, many)
        last, rows = hidden[:, -1], torch.arange(prompt.rows, device=hidden.device)
        reading.select(rows.repeat_interleave(count))
        for left in reversed(range(many)):
            scores = choice.shaped(model.head(last), choice.text)
            share = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
            p, ids = share.topk(count)  # (b, count)
            hidden = reading.hidden(Tokens(ids=ids.view(-1, 1)))[:, 0]
            hidden = hidden.unflatten(0, (-1, count))  # (b, count, dim)
            value = (1 - how.penalty_alpha) * p - how.penalty_alpha * read.nearest(hidden)
            best = value.masked_fill(scores.gather(-1, ids) == NEVER, NEVER).argmax(-1)
            new = choice.take(ids[rows, best])
            yield new
            if not left or choice.over:
                return
            last = hidden[rows, best]
            read.append(last)
            reading.reorder((rows * count + best).repeat_interleave(count))


class Directions:
    """The directions of what was read, (b, t, dim), with room for `new` more.

    real: (b, t), False on padding; None: nothing is.
    """

    def __init__(self, hidden: Tensor, real: Tensor | None, new: int):
        self.length = hidden.shape[1]
        self.held = F.pad(F.normalize(hidden, dim=-1), (0, 0, 0, new))
        self.padding = None if real is None else F.pad(~real, (0, new))

    def nearest(self, hidden: Tensor) -> Tensor:
        """The largest cosine of each candidate (b, k, dim) with one of them, (b, k)."""
        cosine = F.normalize(hidden, dim=-1) @ self.held[:, : self.length].mT  # (b, k, t)
        if self.padding is not None:
            cosine = cosine.masked_fill(self.padding[:, None, : self.length], NEVER)
        return cosine.amax(-1)

    def append(self, hidden: Tensor) -> None:
        """One more for each row, (b, dim)."""
        self.held[:, self.length] = F.normalize(hidden, dim=-1)
        self.length += 1
