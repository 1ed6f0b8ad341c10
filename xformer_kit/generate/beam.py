"""Beam search: several hypotheses at once, of which the best are kept.

The search is that of `transformers`, score for score: 2 * beam candidates at each step, a finished
text only from the best `beam` of them, scores divided by length ** length_penalty.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.generate.options import Decoding
from xformer_kit.generate.processors import AllowedNext, constraints
from xformer_kit.generate.reading import Prompt, Reading, generating, prompt_of

NEVER = -1.0e9  # below the score of every text, yet a number that can be added to


class Beams(NamedTuple):
    """The best texts of each prompt, the best first."""

    ids: Tensor  # (b, num_return, t + n), the prompt in front; filled with `end`
    # (b, num_return), sum of log-probabilities in nats over length ** length_penalty
    scores: Tensor
    # (b, num_return), new tokens, the end counted; 0 where a prompt has fewer texts than asked for
    lengths: Tensor


def beam_search(
    model: nn.Module,
    ids: Tensor | None = None,
    max_new_tokens: int = 64,
    *,
    source: Tensor | None = None,
    source_real: Tensor | None = None,
    real: Tensor | None = None,
    draft: None = None,
    beam: int = 4,
    **options: Any,
) -> Beams:
    """The `num_return` best of `beam` hypotheses for each prompt (b, t), or source (b, s); inputs
    as in `stream`.

    A text ends with `end` or at max_new_tokens; its score is the sum of its log-probabilities over
    length ** length_penalty. A prompt is done, with early_stopping true, when `beam` texts have
    ended; with false, when no running hypothesis at its present length scores above the worst ended
    one; with "never", when none could at any length (where length_penalty is above 0, at the
    longest). One beam is greedy.

    Raises ConfigError for options out of range and for those that shape a draw.
    """
    options |= {"max_new_tokens": max_new_tokens, "beam": beam}
    how = Decoding.of(model.vocab_size, draft is not None, **options)  # type: ignore[arg-type]
    given = {"source": source, "source_real": source_real, "real": real}
    return _searched(model, prompt_of(model, ids, max_new_tokens, start=how.start, **given), how)


@torch.inference_mode()
def _searched(model: Any, prompt: Prompt, how: Decoding) -> Beams:
    with generating(model, how.max_new_tokens, prompt.rows * how.beam):
        reading = Reading(model, prompt, how.max_new_tokens)
        logits = reading.first(how.beam)
        search = Search(how, prompt, logits)
        while True:
            rows = search.step(logits)
            if search.over:
                return search.found()
            reading.select(rows) if len(rows) < len(logits) else reading.reorder(rows)
            logits = reading(search.newest)


class Running(NamedTuple):
    """Hypotheses of the prompts that are not done, the best first, and their texts that have
    ended.
    """

    row: Tensor  # (p,), the prompt
    text: Tensor  # (p, beam, t), ids
    score: Tensor  # (p, beam), sum of log-probabilities
    ended: Tensor  # (p, beam, max_new_tokens), new tokens, filled with `end`
    value: Tensor  # (p, beam), score of an ended text over length ** length_penalty
    length: Tensor  # (p, beam), new tokens of an ended text; 0 where there is none


class Search:
    """The hypotheses of a batch of prompts. A prompt that is done leaves the batch."""

    def __init__(self, how: Decoding, prompt: Prompt, logits: Tensor):
        rows = prompt.rows
        beam = how.beam
        device = logits.device
        self.how = how
        self.given = prompt.tokens.ids.long()
        # of one beam the first text that ends is the greedy one
        self.early = True if beam == 1 else how.early_stopping
        self.fill = 0 if how.end is None else how.end
        text = prompt.text(logits.shape[-1])[:, None].expand(-1, beam, -1)
        none = torch.full((rows, beam), NEVER, device=device)
        first = none.clone()
        first[:, 0] = 0  # a prompt's hypotheses are all the same, so one of them counts
        ended = text.new_full((rows, beam, how.max_new_tokens), self.fill)
        length = ended.new_zeros(rows, beam)
        self.now = Running(torch.arange(rows, device=device), text, first, ended, none, length)
        self.best = self.now  # what each prompt ends with
        self.processors = constraints(how, prompt.length, range(rows))
        self._follow(self.now)

    @property
    def over(self) -> bool:
        return not len(self.now.row)

    @property
    def newest(self) -> Tensor:
        """The newest token of each hypothesis, (p * beam,)."""
        return self.now.text[..., -1].flatten()

    def step(self, logits: Tensor) -> Tensor:
        """Logits (p * beam, vocab) of the next token -> which of these rows the hypotheses go on
        from.
        """
        now, beam, count = self.now, self.how.beam, len(self.now.row)
        score, parent, token = self._candidates(logits)
        length = now.text.shape[-1] + 1 - self.given.shape[1]
        last = length == self.how.max_new_tokens
        ends = torch.full_like(token, last, dtype=torch.bool)
        if self.how.end is not None:
            ends |= token == self.how.end
        if ends[:, :beam].any():
            now = self._end(now, score, parent, token, ends, length)
        score, place = (score + ends * NEVER).topk(beam)
        parent, token = parent.gather(1, place), token.gather(1, place)
        now = now._replace(text=self._texts(now.text, parent, token), score=score)
        done = torch.full_like(now.row, last, dtype=torch.bool) | self._done(now, length)
        rows = parent + beam * torch.arange(count, device=parent.device)[:, None]
        if done.any():
            now, rows = self._leave(now, done), rows[~done]
        self.now = now
        return rows.flatten()

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of each prompt, (p, 2 * beam) each: score, the hypothesis it
        continues, and its token. Twice as many as go on, for at most `beam` of them end.
        """
        scores, vocab = logits.float().log_softmax(-1), logits.shape[-1]
        for process in self.processors:
            scores = process(scores, self.now.text.flatten(0, 1))
        total = scores.view(-1, self.how.beam, vocab) + self.now.score[..., None]
        score, at = total.flatten(1).topk(2 * self.how.beam)
        return score, at // vocab, at % vocab

    @staticmethod
    def _texts(text: Tensor, parent: Tensor, token: Tensor) -> Tensor:
        """(p, beam, t) and (p, n) -> (p, n, t + 1)."""
        old = text.gather(1, parent[..., None].expand(-1, -1, text.shape[-1]))
        return torch.cat([old, token[..., None]], -1)

    def _end(self, now: Running, score, parent, token, ends, length: int) -> Running:
        """The best of the texts that had ended and of those of the best `beam` candidates that
        end.
        """
        beam = self.how.beam
        score, parent, token, ends = (field[:, :beam] for field in (score, parent, token, ends))
        value = score / length**self._penalty + ~ends * NEVER
        new = self._texts(now.text, parent, token)[..., self.given.shape[1] :]
        new = nn.functional.pad(new, (0, self.how.max_new_tokens - length), value=self.fill)
        value, place = torch.cat([now.value, value], 1).topk(beam)
        lengths = torch.cat([now.length, ends * length], 1).gather(1, place)
        both = torch.cat([now.ended, new], 1)
        ended = both.gather(1, place[..., None].expand(-1, -1, both.shape[-1]))
        return now._replace(ended=ended, value=value, length=lengths)

    @property
    def _penalty(self) -> float:
        return 1.0 if self.how.length_penalty is None else self.how.length_penalty

    def _done(self, now: Running, length: int) -> Tensor:
        """Which prompts are done, (p,): no better text is possible, or by `early_stopping`."""
        ended = now.length > 0
        longest = self.how.max_new_tokens if self.early == "never" and self._penalty > 0 else length
        possible = now.score[:, 0] / longest**self._penalty
        worst = now.value.amin(1)
        done = ended.all(1) & (possible <= worst) | ~(possible > NEVER)
        return done | ended.all(1) if self.early is True else done

    def _leave(self, now: Running, done: Tensor) -> Running:
        """Keep the texts of the prompts that are done, and go on without them."""
        out = now.row[done]
        for field in ("ended", "value", "length"):
            getattr(self.best, field)[out] = getattr(now, field)[done]
        now = Running(*(field[~done] for field in now))
        self._follow(now)
        return now

    def _follow(self, now: Running) -> None:
        """Give processors that need it the prompt of each row."""
        for process in self.processors:
            if isinstance(process, AllowedNext):
                process.rows = now.row.repeat_interleave(self.how.beam).tolist()

    def found(self) -> Beams:
        """The best texts, when every prompt is done."""
        count = self.how.num_return
        best = self.best
        ids, scores, lengths = (x[:, :count] for x in (best.ended, best.value, best.length))
        given = self.given[:, None].expand(-1, count, -1)
        return Beams(torch.cat([given, ids[..., : int(lengths.max())]], -1), scores, lengths)
