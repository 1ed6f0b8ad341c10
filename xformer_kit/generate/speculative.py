"""Speculative decoding: a smaller model proposes several tokens for one step of the model, which
accepts or replaces them.

The text has the distribution of the model's own samples, and with temperature 0 it is the model's
greedy text, for any draft.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.generate.prompt import CachedModel, Prompt, generating
from xformer_kit.generate.token_sampler import Draws, TokenSampler, sample
from xformer_kit.registry import config_error
from xformer_kit.tensors.tokens import Tokens


@torch.inference_mode()
def speculate(model: Any, draft: Any, prompt: Prompt, sampler: TokenSampler) -> Iterator[Tensor]:
    """The next tokens (b,), one after another (Leviathan et al., 2023, arXiv:2211.17192, algorithm
    1).

    A proposed token x is accepted with probability min(1, p(x) / q(x)), p the model's and q the
    draft's distribution; the first rejected one is replaced by a sample of the positive part of p -
    q. All rows advance by the smallest number of accepted tokens of any row. That does not change
    the distribution of a row, because the acceptance of a token does not depend on later tokens.
    """
    remaining = sampler.decoding.max_new_tokens
    ahead = 4 if sampler.decoding.ahead is None else sampler.decoding.ahead
    rows = prompt.rows * sampler.decoding.num_return
    with generating(model, remaining, rows * (ahead + 1)), generating(draft, remaining, rows):
        decoder = SpeculativeDecoder(model, draft, prompt, sampler)
        new = decoder.first()
        while True:
            for token in new:
                yield sampler.append(token)
                remaining -= 1
                if not remaining or sampler.over:
                    return
            new = decoder.round(min(ahead, remaining - 1))


class Proposal(NamedTuple):
    """Tokens that a draft proposes, (b, k), and the distributions that they were drawn from, (b, k,
    vocab).
    """

    ids: Tensor
    probs: Tensor


class SpeculativeDecoder:
    """A model and its draft, with caches of the same texts."""

    def __init__(self, model: Any, draft: Any, prompt: Prompt, sampler: TokenSampler):
        self.sampler = sampler
        new = sampler.decoding.max_new_tokens
        self.model = CachedModel(model, prompt, new)
        self.draft = CachedModel(draft, prompt, new)
        # (b, n), tokens that are not in the draft's cache, the newest last
        self.uncached = prompt.tokens.ids[:, :0]

    def first(self) -> list[Tensor]:
        """Computes the prompt with both models; returns the first token."""
        copies = self.sampler.decoding.num_return
        probs = self._probs(self.model.first(copies)[:, None], self.uncached)
        self.draft.first(copies)
        self.uncached = sample(probs[:, 0], self.sampler.draws)[:, None]
        return [self.uncached[:, 0]]

    def round(self, count: int) -> list[Tensor]:
        """Returns 1 to count + 1 tokens (b,): those of the draft that all rows accept, and one of
        the model.
        """
        newest = self.uncached[:, -1:]
        proposal = self._propose(count)
        read = self.model.hidden(Tokens(ids=torch.cat([newest, proposal.ids], 1)))
        probs = self._probs(self.model.head(read), proposal.ids)  # (b, count + 1, vocab)
        accepted = self._accepted(proposal, probs)
        num_accepted = int(accepted.min())
        model_token = sample(_residual(proposal, probs, num_accepted), self.sampler.draws)
        if num_accepted < count:
            model_token = torch.where(
                accepted > num_accepted, proposal.ids[:, num_accepted], model_token
            )
        self._rewind(proposal, num_accepted, model_token)
        return [*proposal.ids[:, :num_accepted].unbind(1), model_token]

    def _propose(self, count: int) -> Proposal:
        """Samples `count` tokens of the draft, one after another."""
        rows, vocab = len(self.uncached), self.draft.model.vocab_size
        ids, all_probs, uncached = self.uncached[:, :0], [], self.uncached
        for _ in range(count):
            logits = self.draft.head(self.draft.hidden(Tokens(ids=uncached))[:, -1:])
            all_probs.append(self._probs(logits, ids)[:, 0])
            uncached = sample(all_probs[-1], self.sampler.draws)[:, None]
            ids = torch.cat([ids, uncached], 1)
        none = torch.zeros(rows, 0, vocab, device=ids.device)
        return Proposal(ids, torch.stack(all_probs, 1) if all_probs else none)

    def _probs(self, logits: Tensor, ids: Tensor) -> Tensor:
        """The distributions (b, n, vocab) of logits (b, n, vocab), the last of them after all of
        `ids`, and each other one after an id less.
        """
        process, text = self.sampler.process, self.sampler.text
        if text is None:  # no processor depends on the text
            scores = process(logits.flatten(0, 1), None).view_as(logits)
        else:
            ends = range(ids.shape[1] + 1)[-logits.shape[1] :]
            texts = [torch.cat([text, ids[:, :n]], 1) for n in ends]
            scores = torch.stack([process(logits[:, j], past) for j, past in enumerate(texts)], 1)
        if self.sampler.decoding.greedy:
            return F.one_hot(scores.argmax(-1), scores.shape[-1]).float()
        return scores.float().softmax(-1)

    def _accepted(self, proposal: Proposal, probs: Tensor) -> Tensor:
        """Number of proposed tokens that each row accepts, (b,); all in rows that have ended."""
        ids, count = proposal.ids[..., None], proposal.ids.shape[1]
        p, q = probs[:, :count].gather(-1, ids)[..., 0], proposal.probs.gather(-1, ids)[..., 0]
        accepted = (_uniform(p, self.sampler.draws) * q < p).long().cumprod(-1).sum(-1)
        stop_criteria = self.sampler.stop_criteria
        return (
            accepted if stop_criteria is None else accepted.masked_fill(stop_criteria.done, count)
        )

    def _rewind(self, proposal: Proposal, accepted: int, model_token: Tensor) -> None:
        """Removes the rejected tokens from the caches."""
        count = proposal.ids.shape[1]
        self.model.past.rewind(count - accepted)
        if accepted < count:
            # the last proposed token is not in the draft's cache
            self.draft.past.rewind(count - accepted - 1)
            self.uncached = model_token[:, None]
        else:
            self.uncached = torch.cat(
                [proposal.ids[:, -1:] if count else self.uncached, model_token[:, None]], 1
            )


def _residual(proposal: Proposal, probs: Tensor, at: int) -> Tensor:
    """Weights of the token after the accepted ones, (b, vocab), not normalised: the positive part
    of p - q, with the model's distribution p = `probs` and the draft's q = `proposal.probs`; p if
    no token was proposed there, or if p equals q.
    """
    if at == proposal.ids.shape[1]:
        return probs[:, at]
    residual = (probs[:, at] - proposal.probs[:, at]).clamp(min=0)
    # the sum is 0 if p is q: such a token is always accepted
    return residual.where(residual.sum(-1, keepdim=True) > 0, probs[:, at])


def _uniform(like: Tensor, draws: Draws) -> Tensor:
    """Uniform random numbers in [0, 1), (b, k)."""
    if isinstance(draws, list):
        return torch.stack(
            [torch.rand(like.shape[1], generator=draw, device=like.device) for draw in draws]
        )
    return torch.rand(like.shape, generator=draws, device=like.device)


def check_draft(model: Any, draft: Any) -> None:
    """Raises ConfigError for a draft with another vocabulary or other stacks than the model."""
    for name in ("vocab_size", "source_vocab_size", "names"):
        ours, theirs = getattr(model, name), getattr(draft, name)
        if ours != theirs:
            raise config_error(
                "draft",
                "must have the model's vocabulary and stacks",
                got=f"{theirs}, and the model has {ours}",
            )
