"""Contrastive search: a likely token that is not similar to the text so far."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.generate.processors import NEVER
from xformer_kit.generate.prompt import CachedModel, Prompt, generating
from xformer_kit.generate.token_sampler import TokenSampler
from xformer_kit.tensors.tokens import Tokens, scaled_to_unit


@torch.inference_mode()
def contrast(model: Any, prompt: Prompt, sampler: TokenSampler) -> Iterator[Tensor]:
    """The next tokens (b,), one after another: of the top_k likeliest the v with the largest

        (1 - alpha) p(v | x) - alpha max_j cos(h_v, h_xj)          (Su et al., 2022,
        arXiv:2202.06417, eq. 5)

    h is the input of the head, h_v after appending v, and j runs over the real tokens of the prompt
    and of the new text; in a model of two stacks only over those of the target. It is
    deterministic. Constraints on the text change p before the candidates are chosen. The cache has
    top_k copies of each row: all candidates are computed in one step, and the chosen one is kept.
    """
    decoding, new_tokens = sampler.decoding, sampler.decoding.max_new_tokens
    count = min(decoding.top_k, model.vocab_size)
    with generating(model, new_tokens):
        cached_model = CachedModel(model, prompt, new_tokens)
        hidden = cached_model.hidden(prompt.tokens)
        # of the text so far, scaled to length 1, (b, t, dim); False on padding, (b, t)
        states, real = scaled_to_unit(hidden), prompt.tokens.real
        last, rows = hidden[:, -1], torch.arange(prompt.rows, device=hidden.device)
        cached_model.select(rows.repeat_interleave(count))
        for remaining in reversed(range(new_tokens)):
            scores = sampler.process(cached_model.head(last), sampler.text)
            probability = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
            p, ids = probability.topk(count)  # (b, count)
            hidden = cached_model.hidden(Tokens(ids=ids.view(-1, 1)))[:, 0]
            hidden = hidden.unflatten(0, (-1, count))  # (b, count, dim)
            cosine = scaled_to_unit(hidden) @ states.mT  # (b, count, t)
            if real is not None:
                cosine = cosine.masked_fill(~real[:, None], NEVER)
            value = (1 - decoding.penalty_alpha) * p - decoding.penalty_alpha * cosine.amax(-1)
            best = value.masked_fill(scores.gather(-1, ids) == NEVER, NEVER).argmax(-1)
            new = sampler.append(ids[rows, best])
            yield new
            if not remaining or sampler.over:
                return
            last = hidden[rows, best]
            states = torch.cat([states, scaled_to_unit(last)[:, None]], 1)
            real = None if real is None else F.pad(real, (0, 1), value=True)
            cached_model.reorder((rows * count + best).repeat_interleave(count))
