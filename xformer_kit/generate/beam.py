"""Beam search: keeps the best hypotheses of each prompt.

It gives the same scores as `transformers`: 2 * beam candidates at each step, finished texts only
from the best `beam` of them, scores divided by length ** length_penalty.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.generate.options import Decoding
from xformer_kit.generate.processors import constraints
from xformer_kit.generate.prompt import CachedModel, Prompt, generating, prompt_of

NEVER = -1.0e30  # below the score of every text, but finite, so that it can be added


class Beams(NamedTuple):
    """The best texts of each prompt, the best first."""

    ids: Tensor  # (b, num_return, t + n), prompt and new tokens, filled with `end`
    # (b, num_return), sum of log-probabilities in nats over length ** length_penalty
    scores: Tensor
    # (b, num_return), new tokens including the end; 0 if a prompt has fewer texts
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
    decoding = Decoding.of(model.vocab_size, draft is not None, **options)  # type: ignore[arg-type]
    prompt = prompt_of(
        model,
        ids,
        max_new_tokens,
        start=decoding.start,
        source=source,
        source_real=source_real,
        real=real,
    )
    return _search(model, prompt, decoding)


@torch.inference_mode()
def _search(model: Any, prompt: Prompt, decoding: Decoding) -> Beams:
    """Runs the model and a BeamSearch until all prompts are done."""
    with generating(model, decoding.max_new_tokens, prompt.rows * decoding.beam):
        cached_model = CachedModel(model, prompt, decoding.max_new_tokens)
        logits = cached_model.first(decoding.beam)
        search = BeamSearch(decoding, prompt, logits)
        while True:
            rows = search.step(logits)
            if not len(search.now.row):  # all prompts are done
                return search.best_texts()
            cached_model.select(rows) if len(rows) < len(logits) else cached_model.reorder(rows)
            logits = cached_model(search.now.text[..., -1].flatten())


class Running(NamedTuple):
    """Hypotheses of the prompts that are not done, the best first, and their texts that have
    ended.
    """

    row: Tensor  # (p,), the prompt
    text: Tensor  # (p, beam, t), ids
    score: Tensor  # (p, beam), sum of log-probabilities
    ended: Tensor  # (p, beam, max_new_tokens), new tokens, filled with `end`
    value: Tensor  # (p, beam), score of an ended text over length ** length_penalty
    length: Tensor  # (p, beam), new tokens of an ended text; 0 if there is none


class BeamSearch:
    """A beam search over a batch of prompts: `step(logits)` extends all hypotheses by a token. A
    prompt that is done leaves the batch.
    """

    def __init__(self, decoding: Decoding, prompt: Prompt, logits: Tensor):
        rows = prompt.rows
        beam = decoding.beam
        device = logits.device
        self.decoding = decoding
        self.prompt_ids = prompt.given
        # with one beam the first text that ends is the greedy one
        self.early_stopping = True if beam == 1 else decoding.early_stopping
        self.penalty = 1.0 if decoding.length_penalty is None else decoding.length_penalty
        self.fill = 0 if decoding.end is None else decoding.end
        text = prompt.text(logits.shape[-1])[:, None].expand(-1, beam, -1)
        never = torch.full((rows, beam), NEVER, device=device)
        score = never.clone()
        score[:, 0] = 0  # all hypotheses of a prompt are equal at first: only one counts
        ended = text.new_full((rows, beam, decoding.max_new_tokens), self.fill)
        length = ended.new_zeros(rows, beam)
        self.now = Running(torch.arange(rows, device=device), text, score, ended, never, length)
        self.best = self.now  # the final texts of each prompt
        self.rows: list[int] = self._prompts(self.now)  # the prompt of each row of logits
        self.processors = constraints(decoding, prompt.length, self.rows)

    def step(self, logits: Tensor) -> Tensor:
        """Logits (p * beam, vocab) of the next token -> rows that the new hypotheses continue."""
        now, beam, count = self.now, self.decoding.beam, len(self.now.row)
        score, parent, token = self._candidates(logits)
        length = now.text.shape[-1] + 1 - self.prompt_ids.shape[1]
        last = length == self.decoding.max_new_tokens
        ends = torch.full_like(token, last, dtype=torch.bool)
        if self.decoding.end is not None:
            ends |= token == self.decoding.end
        if ends[:, :beam].any():
            now = self._add_ended(now, score, parent, token, ends, length)
        score, place = (score + ends * NEVER).topk(beam)
        parent, token = parent.gather(1, place), token.gather(1, place)
        now = now._replace(text=self._texts(now.text, parent, token), score=score)
        done = torch.full_like(now.row, last, dtype=torch.bool) | self._done(now, length)
        rows = parent + beam * torch.arange(count, device=parent.device)[:, None]
        if done.any():
            now, rows = self._finish(now, done), rows[~done]
        self.now = now
        return rows.flatten()

    def _candidates(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of each prompt, (p, 2 * beam) each: score, the hypothesis it
        continues, and its token. There are 2 * beam, since at most `beam` of them can end.
        """
        scores, vocab = logits.float().log_softmax(-1), logits.shape[-1]
        for process in self.processors:
            scores = process(scores, self.now.text.flatten(0, 1))
        total = scores.view(-1, self.decoding.beam, vocab) + self.now.score[..., None]
        score, index = total.flatten(1).topk(2 * self.decoding.beam)
        return score, index // vocab, index % vocab

    @staticmethod
    def _texts(text: Tensor, parent: Tensor, token: Tensor) -> Tensor:
        """The texts of the parents, each with a token after it: (p, beam, t) and (p, n), for n
        hypotheses of each of p prompts -> (p, n, t + 1).
        """
        old = text.gather(1, parent[..., None].expand(-1, -1, text.shape[-1]))
        return torch.cat([old, token[..., None]], -1)

    def _add_ended(self, now: Running, score, parent, token, ends, length: int) -> Running:
        """Returns `now` with the best `beam` of its ended texts and of those that end now, among
        the first `beam` candidates. The running texts do not change.

        score, parent, token: (p, 2 * beam), from `_candidates`; ends: (p, 2 * beam), which of them
        end; length: number of new tokens.
        """
        beam = self.decoding.beam
        score, parent, token, ends = (field[:, :beam] for field in (score, parent, token, ends))
        ends = ends & (score > NEVER)  # else a copy of another text
        value = score / length**self.penalty + ~ends * NEVER
        new = self._texts(now.text, parent, token)[..., self.prompt_ids.shape[1] :]
        new = nn.functional.pad(new, (0, self.decoding.max_new_tokens - length), value=self.fill)
        value, place = torch.cat([now.value, value], 1).topk(beam)
        lengths = torch.cat([now.length, ends * length], 1).gather(1, place)
        both = torch.cat([now.ended, new], 1)
        ended = both.gather(1, place[..., None].expand(-1, -1, both.shape[-1]))
        return now._replace(ended=ended, value=value, length=lengths)

    def _done(self, now: Running, length: int) -> Tensor:
        """Which prompts are done, (p,): no better text is possible, or by `early_stopping`."""
        ended = now.length > 0
        if self.early_stopping == "never" and self.penalty > 0:
            length = self.decoding.max_new_tokens
        possible = now.score[:, 0] / length**self.penalty
        worst = now.value.amin(1)
        done = ended.all(1) & (possible <= worst) | ~(now.score[:, 0] > NEVER)
        return done | ended.all(1) if self.early_stopping is True else done

    def _finish(self, now: Running, done: Tensor) -> Running:
        """Stores the texts of the prompts that are done, and removes these prompts."""
        for field in ("ended", "value", "length"):
            getattr(self.best, field)[now.row[done]] = getattr(now, field)[done]
        now = Running(*(field[~done] for field in now))
        self.rows[:] = self._prompts(now)
        return now

    def _prompts(self, now: Running) -> list[int]:
        """Returns the index of the prompt of each row of logits."""
        return now.row.repeat_interleave(self.decoding.beam).tolist()

    def best_texts(self) -> Beams:
        """The best texts, when every prompt is done."""
        count = self.decoding.num_return
        best = self.best
        ids, scores, lengths = (x[:, :count] for x in (best.ended, best.value, best.length))
        prompt_ids = self.prompt_ids[:, None].expand(-1, count, -1)
        return Beams(torch.cat([prompt_ids, ids[..., : int(lengths.max())]], -1), scores, lengths)
