"""Generation token by token: greedy, sampling, contrastive or speculative."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.generate.beam import beam_search
from xformer_kit.generate.compiled_step import CompiledModel
from xformer_kit.generate.contrastive import contrast
from xformer_kit.generate.options import Decoding
from xformer_kit.generate.prompt import CachedModel, Prompt, evaluating, generating, prompt_of
from xformer_kit.generate.speculative import check_draft, speculate
from xformer_kit.generate.token_sampler import TokenSampler
from xformer_kit.registry import config_error


def generate(
    model: nn.Module,
    ids: Tensor | None = None,
    max_new_tokens: int = 64,
    *,
    source: Tensor | None = None,
    source_real: Tensor | None = None,
    real: Tensor | None = None,
    draft: nn.Module | None = None,
    **options: Any,
) -> Tensor:
    """Returns prompts (b, t) with their continuations, (b * num_return, t + n), n <=
    max_new_tokens.

    The texts of one prompt are consecutive rows. Rows that have ended are filled with `end`;
    generation stops when all have. Without ids every text begins with `start`. With `beam` it is
    beam search (see `beam_search`, which also returns scores). Other arguments are as in `stream`.
    """
    inputs: Any = {"source": source, "source_real": source_real, "real": real}
    if options.get("beam") is not None:
        options["draft"] = draft  # beam search rejects it
        return beam_search(model, ids, max_new_tokens, **inputs, **options).ids.flatten(0, 1)
    prompt, decoding = _checked(model, ids, max_new_tokens, draft, inputs, options)
    columns = [token[:, None] for token in _stream(model, prompt, decoding, draft)]
    start = prompt.given.repeat_interleave(decoding.num_return, 0)
    return torch.cat([start, *columns], 1)


def stream(
    model: nn.Module,
    ids: Tensor | None = None,
    max_new_tokens: int = 64,
    *,
    source: Tensor | None = None,
    source_real: Tensor | None = None,
    real: Tensor | None = None,
    draft: nn.Module | None = None,
    **options: Any,
) -> Iterator[Tensor]:
    """Yields the next tokens of prompts (b, t), one tensor (b * num_return,) per step.

    ids: prompts; those of different lengths are padded, not at the end, with real (b, t) False
        there.
    source: (b, s), for a model of two stacks, with source_real False on padding; `ids` are then the
    first tokens of the target, or None, with `start`.
    draft: a smaller model with the same vocabulary that proposes `ahead` tokens at once (see
    `speculate`).
    options: those of `Decoding`. `penalty_alpha` with `top_k` is contrastive search (see
    `contrast`); `stop` needs model.tokenizer.

    The model is in evaluation mode during generation. Raises ConfigError for an empty prompt, for
    options out of range or that exclude each other, and for more tokens than the model supports.
    """
    if options.get("beam") is not None:
        raise config_error(
            "beam",
            "beam search has texts only at its end",
            fix="Call generate, or leave beam out.",
        )
    inputs = {"source": source, "source_real": source_real, "real": real}
    prompt, decoding = _checked(model, ids, max_new_tokens, draft, inputs, options)
    return _stream(model, prompt, decoding, draft)


def _checked(
    model: Any,
    ids: Tensor | None,
    new: int,
    draft: Any,
    inputs: dict[str, Any],
    options: dict[str, Any],
) -> tuple[Prompt, Decoding]:
    """Returns the checked prompt and options."""
    if draft is not None:
        check_draft(model, draft)
    decoding = Decoding.of(model.vocab_size, draft is not None, max_new_tokens=new, **options)
    return prompt_of(model, ids, new, start=decoding.start, **inputs), decoding


def _stream(model: Any, prompt: Prompt, decoding: Decoding, draft: Any) -> Iterator[Tensor]:
    """The next tokens (b * num_return,), one after another, by the method that the options name."""
    sampler = TokenSampler(decoding, prompt, model)
    if decoding.penalty_alpha is not None:
        return contrast(model, prompt, sampler)
    if draft is not None:
        return speculate(model, draft, prompt, sampler)
    return _sample_tokens(model, prompt, sampler)


@torch.inference_mode()
def _sample_tokens(model: Any, prompt: Prompt, sampler: TokenSampler) -> Iterator[Tensor]:
    """The next tokens (b * num_return,), one after another, each step with one token per row."""
    new_tokens, compiled = sampler.decoding.max_new_tokens, sampler.decoding.compiled
    rows = prompt.rows * sampler.decoding.num_return
    with evaluating(model) if compiled else generating(model, new_tokens, rows):
        cached_model = (CompiledModel if compiled else CachedModel)(model, prompt, new_tokens)
        logits = cached_model.first(sampler.decoding.num_return)
        for remaining in reversed(range(new_tokens)):
            new = sampler(logits)
            yield new
            if not remaining or sampler.over:
                return
            logits = cached_model(new)
