"""Generation token by token: greedy, drawn from the model's distribution, or contrastive."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.generate.beam import beam_search
from xformer_kit.generate.choosing import Choice
from xformer_kit.generate.contrastive import contrast
from xformer_kit.generate.options import Decoding
from xformer_kit.generate.reading import Prompt, Reading, generating, prompt_of
from xformer_kit.generate.speculative import check_draft, speculate
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
    """Prompts (b, t) and their continuations, (b * num_return, t + n) with n up to max_new_tokens.

    The texts of one prompt follow each other. A row that ended is filled with `end`; when all have,
    nothing more is computed. Without ids the text begins with `start`. `beam` searches (see
    `beam_search`, which gives scores too); all else is as in `stream`.
    """
    given: Any = {"source": source, "source_real": source_real, "real": real}
    if options.get("beam") is not None:
        options["draft"] = draft  # a search refuses one
        found = beam_search(model, ids, max_new_tokens, **given, **options)
        return found.ids.flatten(0, 1)
    prompt, how = _checked(model, ids, max_new_tokens, draft, given, options)
    new = list(_stream(model, prompt, how, draft))
    start = prompt.tokens.ids
    if how.num_return > 1:
        start = start.repeat_interleave(how.num_return, 0)
    return torch.cat([start, *(token[:, None] for token in new)], 1)


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
    """The next tokens of prompts (b, t), one (b * num_return,) tensor after another, as soon as
    each is known.

    A model of two stacks is given a source (b, s), and `start` or the first tokens of the target as
    ids. Prompts of different lengths are padded on the left, with real (b, t) False there;
    source_real is False on the source's padding. `draft`, a smaller model of the same vocabulary,
    proposes `ahead` tokens at once (see `speculate`); `penalty_alpha` with `top_k` is contrastive
    search (see `contrast`). `options` are those of `Decoding`; `stop` needs model.tokenizer. The
    model is in evaluation mode meanwhile.

    Raises ConfigError for an empty prompt, for options out of range or that exclude each other, and
    for more tokens than a position knows.
    """
    if options.get("beam") is not None:
        raise config_error(
            "beam",
            "a search knows its texts only at its end",
            fix="Call generate, or leave beam out.",
        )
    given = {"source": source, "source_real": source_real, "real": real}
    prompt, how = _checked(model, ids, max_new_tokens, draft, given, options)
    return _stream(model, prompt, how, draft)


def _checked(
    model: Any,
    ids: Tensor | None,
    new: int,
    draft: Any,
    given: dict[str, Any],
    options: dict[str, Any],
) -> tuple[Prompt, Decoding]:
    """The prompt and the options, checked."""
    if draft is not None:
        check_draft(model, draft)
    how = Decoding.of(model.vocab_size, draft is not None, max_new_tokens=new, **options)
    return prompt_of(model, ids, new, start=how.start, **given), how


def _stream(model: Any, prompt: Prompt, how: Decoding, draft: Any) -> Iterator[Tensor]:
    choice = Choice(how, prompt, model)
    if how.penalty_alpha is not None:
        return contrast(model, prompt, choice)
    return (
        _drawn(model, prompt, choice) if draft is None else speculate(model, draft, prompt, choice)
    )


@torch.inference_mode()
def _drawn(model: Any, prompt: Prompt, choice: Choice) -> Iterator[Tensor]:
    many = choice.how.max_new_tokens
    with generating(model, many, prompt.rows * choice.how.num_return):
        reading = Reading(model, prompt, many)
        logits = reading.first(choice.how.num_return)
        for left in reversed(range(many)):
            new = choice(logits)
            yield new
            if not left or choice.over:
                return
            logits = reading(new)
