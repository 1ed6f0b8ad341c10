"""Chooses the next tokens: processes scores, samples one token per row, and fills rows that have
ended.
"""

from typing import Any

import torch
from torch import Tensor

from xformer_kit.generate.options import Decoding, generators
from xformer_kit.generate.processors import Processor, constraints, warpers
from xformer_kit.generate.prompt import Prompt
from xformer_kit.generate.stopping import StopCriteria

# random generators: one per row, one for all, or torch's default
Draws = list[torch.Generator] | torch.Generator | None


class TokenSampler:
    """Called with logits (b, vocab), it returns the next tokens (b,). There are `num_return` rows
    per prompt.
    """

    def __init__(self, decoding: Decoding, prompt: Prompt, model: Any):
        self.decoding = decoding
        rows = prompt.rows * decoding.num_return
        device = prompt.tokens.ids.device
        self.draws = generators(decoding, rows, device)
        prompt_rows = [row for row in range(prompt.rows) for _ in range(decoding.num_return)]
        of_text = constraints(decoding, prompt.length, prompt_rows)
        self.processors: list[Processor] = of_text + warpers(decoding)
        self.text: Tensor | None = (
            prompt.text(model.vocab_size, decoding.num_return) if of_text else None
        )
        self.stop_criteria = (
            StopCriteria(decoding, rows, device, getattr(model, "tokenizer", None))
            if decoding.end is not None or decoding.stops
            else None
        )

    def __call__(self, logits: Tensor) -> Tensor:
        return self.append(pick(self.process(logits, self.text), self.decoding.greedy, self.draws))

    def process(self, logits: Tensor, text: Tensor | None) -> Tensor:
        """Processed scores (b, vocab) after a text (b, t); their softmax is sampled."""
        if self.processors:
            logits = logits.float()
            for process in self.processors:
                logits = process(logits, text)  # type: ignore[arg-type]
        return logits

    def append(self, new: Tensor) -> Tensor:
        """Returns sampled tokens (b,) with `end` in rows that have ended, and appends them to the
        text.
        """
        if self.stop_criteria is not None:
            new = self.stop_criteria(new)
        if self.text is not None:
            self.text = torch.cat([self.text, new[:, None]], 1)
        return new

    @property
    def over(self) -> bool:
        """Whether every row has ended."""
        return self.stop_criteria is not None and self.stop_criteria.all()


def pick(scores: Tensor, greedy: bool, draws: Draws = None) -> Tensor:
    """One token per row, the likeliest or a sample: scores (b, vocab) -> (b,)."""
    return scores.argmax(-1) if greedy else sample(scores.float().softmax(-1), draws)


def sample(probs: Tensor, draws: Draws = None) -> Tensor:
    """Samples one token per row: probabilities (b, vocab) -> (b,)."""
    if isinstance(draws, list):
        rows = [
            torch.multinomial(row[None], 1, generator=draw)
            for row, draw in zip(probs, draws, strict=True)
        ]
        return torch.cat(rows)[:, 0]
    return torch.multinomial(probs, 1, generator=draws)[:, 0]


def choose(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    **more: Any,
) -> Tensor:
    """Samples one token per row: logits (b, vocab) -> (b,). Options as in `Decoding`."""
    decoding = Decoding.of(temperature=temperature, top_k=top_k, top_p=top_p, **more)
    logits = logits.float()
    for process in warpers(decoding):
        logits = process(logits, logits)
    return pick(logits, decoding.greedy, generator)
