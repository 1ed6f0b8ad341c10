"""One token after another: greedy, or drawn from the model's distribution."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from xformer_kit.packing import packed
from xformer_kit.registry import ConfigError
from xformer_kit.tokens import Tokens

MANY = 32  # new tokens from which on copies of the weights pay


def generate(
    model: nn.Module,
    ids: Tensor,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    real: Tensor | None = None,
) -> Tensor:
    """Prompts (b, t) and their continuations: (b, t + max_new_tokens). Options as in `stream`."""
    new = list(stream(model, ids, max_new_tokens, temperature, top_k, top_p, seed, real))
    return torch.cat([ids, *(token[:, None] for token in new)], 1)


def stream(
    model: nn.Module,
    ids: Tensor,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    real: Tensor | None = None,
) -> Iterator[Tensor]:
    """The next tokens of prompts (b, t), one (b,) tensor after another, as soon as each is known.

    temperature divides the logits; 0 takes the likeliest token. top_k keeps the k likeliest tokens, top_p the smallest set
    whose probability reaches p (Holtzman et al., 2020, arXiv:1904.09751, section 3.1). seed fixes the draws. Prompts of
    different lengths are padded on the left, with real (b, t) False there. The model is in evaluation mode meanwhile.

    Raises ConfigError for an empty prompt, for options out of range, and for more tokens than a position knows.
    """
    _check(model, ids, max_new_tokens, temperature, top_k, top_p)
    return _stream(model, ids, max_new_tokens, temperature, top_k, top_p, seed, real)


def _stream(model, ids, max_new_tokens, temperature, top_k, top_p, seed, real) -> Iterator[Tensor]:
    source = None if seed is None else torch.Generator(ids.device).manual_seed(seed)
    with torch.inference_mode(), evaluating(model), packed(model) if max_new_tokens >= MANY else nullcontext():
        past = model.cache(ids.shape[0], ids.shape[1] + max_new_tokens)
        tokens = model.prompt(ids, real)
        for _ in range(max_new_tokens):
            hidden, _ = model.hidden(tokens, past)
            new = choose(model.head(hidden[:, -1]), temperature, top_k, top_p, source)
            yield new
            tokens = Tokens(ids=new[:, None])


def choose(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    source: torch.Generator | None = None,
) -> Tensor:
    """One token for each row: logits (b, vocab) -> (b,)."""
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits.float() / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, -1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -float("inf"))
    if top_p is not None and top_p < 1:
        ordered, order = logits.sort(-1, descending=True)
        share = ordered.softmax(-1)
        beyond = share.cumsum(-1) - share >= top_p  # the token that reaches p still belongs to the set
        logits = logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -float("inf"))
    return torch.multinomial(logits.softmax(-1), 1, generator=source)[:, 0]


@contextmanager
def evaluating(model: nn.Module):
    """The model in evaluation mode, and back."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _check(model, ids, max_new_tokens, temperature, top_k, top_p) -> None:
    faults = []
    if not isinstance(ids, Tensor):
        raise ConfigError(
            f"prompt: must be a tensor (batch, tokens); got {type(ids).__name__}. Try torch.tensor([[1, 2]])."
        )
    if ids.ndim != 2 or not ids.shape[1] or ids.is_floating_point():
        faults.append(
            f"prompt: must be ids (batch, tokens) with at least one token; got {tuple(ids.shape)} of {ids.dtype}."
        )
    if max_new_tokens < 1:
        faults.append(f"max_new_tokens: must be at least 1; got {max_new_tokens}.")
    if not temperature >= 0:
        faults.append(f"temperature: must be at least 0; got {temperature}. 0 takes the likeliest token.")
    if top_k is not None and top_k < 1:
        faults.append(f"top_k: must be at least 1; got {top_k}.")
    if top_p is not None and not 0 < top_p <= 1:
        faults.append(f"top_p: must be above 0 and at most 1; got {top_p}.")
    known = getattr(model, "longest", None)
    if not faults and known is not None and ids.shape[1] + max_new_tokens > known:
        room = known - ids.shape[1]
        faults.append(
            f"max_new_tokens: the model's positions end at {known} tokens (model.max_len), the prompt has {ids.shape[1]}; got "
            f"{max_new_tokens}. "
            + (f"Ask for at most {room}." if room > 0 else f"Shorten the prompt to below {known}.")
        )
    if faults:
        raise ConfigError(faults)
