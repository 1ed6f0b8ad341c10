"""Processors of the scores of the next token.

Each processor is a function that maps scores (b, vocab) and the ids so far (b, t) to scores. They
compose: the result of one is the input of the next. Constraints act on logits or, in beam search,
on log-probabilities; warpers change the distribution of a draw. The id of padding is vocab_size.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.generate.options import Allowed, Decoding
from xformer_kit.registry import config_error

Processor = Callable[[Tensor, Tensor], Tensor]
NEVER = -float("inf")


def scaled(scores: Tensor, ids: Tensor, temperature: float) -> Tensor:
    """Scores, relative to the largest, divided by a temperature above 0, or by the nearest number
    of their dtype.
    """
    limits = torch.finfo(scores.dtype)
    temperature = min(max(temperature, limits.tiny), limits.max)
    return (scores - scores.amax(-1, keepdim=True)) / temperature


def top_k_filter(scores: Tensor, ids: Tensor, k: int) -> Tensor:
    """Keeps the k likeliest tokens (Fan et al., 2018, arXiv:1805.04833, section 5.1.1)."""
    if k >= scores.shape[-1]:
        return scores
    least = scores.topk(k, -1).values[:, -1:]
    return scores.masked_fill(scores < least, NEVER)


def top_p_filter(scores: Tensor, ids: Tensor, p: float) -> Tensor:
    """Keeps the smallest set of likeliest tokens whose probability reaches p (Holtzman et al.,
    2020, arXiv:1904.09751, section 3.1). The token that reaches p belongs to the set.
    """
    if p >= 1:
        return scores
    ordered, order = scores.sort(-1, descending=True)
    return _until(p, scores, order, ordered.softmax(-1))


def min_p_filter(scores: Tensor, ids: Tensor, p: float) -> Tensor:
    """Keeps tokens with at least p times the probability of the likeliest (Nguyen et al., 2024,
    arXiv:2407.01082, section 3).
    """
    probability = scores.softmax(-1)
    return scores.masked_fill(probability < p * probability.amax(-1, keepdim=True), NEVER)


def typical_p_filter(scores: Tensor, ids: Tensor, p: float) -> Tensor:
    """Keeps the tokens whose surprisal -log p is nearest to the entropy, as many as reach
    probability p together (Meister et al., 2023, arXiv:2202.00666, section 4).
    """
    surprise = -scores.log_softmax(-1)
    probability = surprise.neg().exp()
    entropy = (probability * surprise).nansum(-1, keepdim=True)  # 0 times infinity is 0 here
    order = (surprise - entropy).abs().argsort(-1)
    return _until(p, scores, order, probability.gather(-1, order))


def _until(p: float, scores: Tensor, order: Tensor, probability: Tensor) -> Tensor:
    """Keeps the scores of the first tokens in an order whose probabilities (b, vocab) sum to p."""
    excluded = probability.cumsum(-1) - probability >= p
    excluded[:, 0] = False  # p may be 0 in the dtype
    return scores.masked_fill(torch.zeros_like(excluded).scatter(-1, order, excluded), NEVER)


def penalize_repetition(scores: Tensor, ids: Tensor, penalty: float) -> Tensor:
    """Ids in the text so far: positive scores divided by the penalty, negative ones multiplied
    (Keskar et al., 2019, arXiv:1909.05858, section 4.1, there for positive ones).
    """
    wide = F.pad(scores, (0, 1))  # a column for padding
    seen = wide.gather(-1, ids)
    seen = torch.where(seen < 0, seen * penalty, seen / penalty)
    return wide.scatter(-1, ids, seen)[:, :-1]


def no_repeat_ngram(scores: Tensor, ids: Tensor, n: int) -> Tensor:
    """No sequence of n tokens occurs twice (Paulus et al., 2018, arXiv:1705.04304, section 2.5,
    there n is 3). A row in which that would exclude all tokens is unchanged.
    """
    if ids.shape[1] < n:
        return scores
    windows = ids.unfold(1, n, 1)  # (b, t) -> (b, t - n + 1, n)
    latest = ids[:, ids.shape[1] + 1 - n :]
    repeated = (windows[..., :-1] == latest[:, None]).all(-1)
    vocab = scores.shape[-1]
    excluded = torch.zeros(len(scores), vocab + 1, dtype=torch.bool, device=scores.device)
    excluded = excluded.scatter(-1, windows[..., -1].where(repeated, vocab), True)[:, :-1]
    all_excluded = (excluded | (scores == NEVER)).all(-1, keepdim=True)
    return scores.masked_fill(excluded & ~all_excluded, NEVER)


def min_new_tokens(scores: Tensor, ids: Tensor, count: int, end: int, prompt: int) -> Tensor:
    """Excludes `end` in the first `count` new tokens."""
    if ids.shape[1] - prompt >= count:
        return scores
    scores = scores.clone()
    scores[:, end] = NEVER
    return scores


def keep_allowed(scores: Tensor, ids: Tensor, allowed: Sequence[int]) -> Tensor:
    """Keeps the listed ids."""
    listed = torch.tensor(allowed, device=scores.device)
    return torch.full_like(scores, NEVER).index_copy(-1, listed, scores[:, listed])


def keep_next(
    scores: Tensor,
    ids: Tensor,
    allowed: Allowed,
    end: int | None,
    prompt: int,
    rows: Sequence[int],
    min_new: int = 0,
) -> Tensor:
    """Keeps the ids that a function of (index of the prompt, ids so far) returns. It is not called
    for texts that have ended. Raises ConfigError if it returns no ids, or one outside the
    vocabulary.

    prompt: tokens of the prompt. rows: index of the prompt of each row. min_new: new tokens before
    `end` may occur.
    """
    vocab, kept = scores.shape[-1], torch.full_like(scores, NEVER)
    for i, (row, text) in enumerate(zip(rows, ids, strict=True)):
        if end is not None and (text[prompt:] == end).any():
            kept[i] = scores[i]
            continue
        given = allowed(row, text[text < vocab])
        try:
            listed = list(map(operator.index, given))
        except TypeError:  # no sequence, or not of integers
            listed = []
        early = len(text) - prompt < min_new
        usable = {*listed} - {end if early else None}
        if not usable or min(listed) < 0 or max(listed) >= vocab:
            raise config_error(
                "allowed",
                f"must return at least one id{' besides end' * early}, and ids from 0 to"
                f" {vocab - 1}",
                got=f"{given} for row {row} after {len(text)} tokens",
            )
        kept[i, listed] = scores[i, listed]
    return kept


def constraints(decoding: Decoding, prompt: int, rows: Sequence[int]) -> list[Processor]:
    """Processors that depend on the text after `prompt` tokens; `rows` as in `keep_next`, which a
    search may change.
    """
    processors: list[Processor] = []
    if decoding.repetition_penalty is not None:
        processors.append(partial(penalize_repetition, penalty=decoding.repetition_penalty))
    if callable(decoding.allowed):
        processors.append(
            partial(
                keep_next,
                allowed=decoding.allowed,
                end=decoding.end,
                prompt=prompt,
                rows=rows,
                min_new=decoding.min_new_tokens,
            )
        )
    elif decoding.allowed is not None:
        allowed = [*{*decoding.allowed, decoding.end} - {None}]
        processors.append(partial(keep_allowed, allowed=allowed))
    if decoding.min_new_tokens:
        count, end = decoding.min_new_tokens, decoding.end
        processors.append(partial(min_new_tokens, count=count, end=end, prompt=prompt))
    # Last, because it checks whether all tokens are excluded.
    if decoding.no_repeat_ngram is not None:
        processors.append(partial(no_repeat_ngram, n=decoding.no_repeat_ngram))
    return processors


def warpers(decoding: Decoding) -> list[Processor]:
    """Processors that change the distribution; none for temperature 0 and contrastive search."""
    if decoding.greedy or decoding.penalty_alpha is not None:
        return []
    temperature = None if decoding.temperature == 1 else decoding.temperature
    functions: Any = (
        (scaled, "temperature", temperature),
        (top_k_filter, "k", decoding.top_k),
        (top_p_filter, "p", decoding.top_p),
        (min_p_filter, "p", decoding.min_p),
        (typical_p_filter, "p", decoding.typical_p),
    )
    return [partial(f, **{name: value}) for f, name, value in functions if value is not None]
