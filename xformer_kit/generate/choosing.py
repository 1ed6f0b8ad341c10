"""The choice of the next token: scores are processed, one token of each row is taken, and rows that
have ended stay ended.
"""

from typing import Any

import torch
from torch import Tensor

from xformer_kit.generate.options import Decoding, generators
from xformer_kit.generate.processors import Processor, constraints, warpers
from xformer_kit.generate.reading import Prompt
from xformer_kit.generate.stopping import Ending

# one for each row, one for all, or torch's own
Draws = list[torch.Generator] | torch.Generator | None


class Choice:
    """The next tokens (b,) from their logits (b, vocab), call after call. Rows are `num_return`
    copies of each prompt.
    """

    def __init__(self, how: Decoding, prompt: Prompt, model: Any):
        self.how = how
        rows = prompt.rows * how.num_return
        device = prompt.tokens.ids.device
        self.draws = generators(how, rows, device)
        owners = [row for row in range(prompt.rows) for _ in range(how.num_return)]
        self.constraints = constraints(how, prompt.length, owners)
        self.processors: list[Processor] = self.constraints + warpers(how)
        self.text: Tensor | None = (
            prompt.text(model.vocab_size, how.num_return) if self.constraints else None
        )
        ends = how.end is not None or how.stops
        self.ending = Ending(how, rows, device, getattr(model, "tokenizer", None)) if ends else None

    def __call__(self, logits: Tensor) -> Tensor:
        return self.take(pick(self.shaped(logits, self.text), self.how.greedy, self.draws))

    def shaped(self, logits: Tensor, text: Tensor | None) -> Tensor:
        """Scores (b, vocab) after a text (b, t), whose softmax is drawn from."""
        if self.processors:
            logits = logits.float()
            for process in self.processors:
                logits = process(logits, text)  # type: ignore[arg-type]
        return logits

    def take(self, new: Tensor) -> Tensor:
        """Tokens (b,) that were drawn, with `end` in rows that have ended; the text goes on with
        them.
        """
        if self.ending is not None:
            new = self.ending(new)
        if self.text is not None:
            self.text = torch.cat([self.text, new[:, None]], 1)
        return new

    @property
    def over(self) -> bool:
        """Whether every row has ended."""
        return self.ending is not None and self.ending.all()


def pick(scores: Tensor, greedy: bool, draws: Draws = None) -> Tensor:
    """One token of each row: the likeliest, or a draw. (b, vocab) -> (b,)."""
    return scores.argmax(-1) if greedy else drawn(scores.float().softmax(-1), draws)


def drawn(share: Tensor, draws: Draws = None) -> Tensor:
    """One token of each row with these probabilities, (b, vocab) -> (b,)."""
    if isinstance(draws, list):
        rows = [
            torch.multinomial(row[None], 1, generator=draw)
            for row, draw in zip(share, draws, strict=True)
        ]
        return torch.cat(rows)[:, 0]
    return torch.multinomial(share, 1, generator=draws)[:, 0]


def choose(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    source: torch.Generator | None = None,
    **more: Any,
) -> Tensor:
    """One token for each row: logits (b, vocab) -> (b,). Options as in `Decoding`."""
    how = Decoding.of(temperature=temperature, top_k=top_k, top_p=top_p, **more)
    logits = logits.float()
    for process in warpers(how):
        logits = process(logits, logits)
    return pick(logits, how.greedy, source)
