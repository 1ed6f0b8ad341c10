"""Speculative decoding: a smaller model proposes several tokens for one step of the model, which
accepts or replaces them.

The text is distributed as the model's own draws, and with temperature 0 is its greedy text, for
any draft.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.generate.choosing import Choice, Draws, drawn
from xformer_kit.generate.reading import Prompt, Reading, generating
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import config_error


@torch.inference_mode()
def speculate(model: Any, draft: Any, prompt: Prompt, choice: Choice) -> Iterator[Tensor]:
    """The next tokens (b,), one after another (Leviathan et al., 2023, arXiv:2211.17192, algorithm
    1).

    A proposed token x is kept with probability min(1, p(x) / q(x)), p the model's and q the draft's
    distribution; the first that is not is drawn anew from the positive part of p - q. All rows go
    on by what the slowest of them keeps, which leaves each row's distribution as it is: whether a
    token is kept never depends on that token's own later ones.
    """
    left, ahead = choice.how.max_new_tokens, 4 if choice.how.ahead is None else choice.how.ahead
    rows = prompt.rows * choice.how.num_return
    with generating(model, left, rows * (ahead + 1)), generating(draft, left, rows):
        pair = Pair(model, draft, prompt, choice)
        new = pair.first()
        while True:
            for token in new:
                yield choice.take(token)
                left -= 1
                if not left or choice.over:
                    return
            new = pair.round(min(ahead, left - 1))


class Proposal(NamedTuple):
    """Tokens that a draft proposes, (b, k), and the distributions that they were drawn from, (b, k,
    vocab).
    """

    ids: Tensor
    share: Tensor


class Pair:
    """A model and its draft, reading the same texts."""

    def __init__(self, model: Any, draft: Any, prompt: Prompt, choice: Choice):
        self.choice = choice
        new = choice.how.max_new_tokens
        self.model = Reading(model, prompt, new)
        self.draft = Reading(draft, prompt, new)
        # (b, n), tokens that the draft has not read, the newest last
        self.unread = prompt.tokens.ids[:, :0]

    def first(self) -> list[Tensor]:
        """The first token after the prompt, which both read."""
        copies = self.choice.how.num_return
        share = self._share(self.model.first(copies)[:, None], self.unread)
        self.draft.first(copies)
        self.unread = drawn(share[:, 0], self.choice.draws)[:, None]
        return [self.unread[:, 0]]

    def round(self, count: int) -> list[Tensor]:
        """One to count + 1 tokens (b,): those of the draft that every row keeps, and one of the
        model's own.
        """
        newest = self.unread[:, -1:]
        proposal = self._propose(count)
        read = self.model.hidden(Tokens(ids=torch.cat([newest, proposal.ids], 1)))
        share = self._share(self.model.model.head(read), proposal.ids)  # (b, count + 1, vocab)
        kept = self._kept(proposal, share)
        least = int(kept.min())
        own = drawn(_residual(proposal, share, least), self.choice.draws)
        if least < count:
            own = torch.where(kept > least, proposal.ids[:, least], own)
        self._rewind(proposal, least, own)
        return [*proposal.ids[:, :least].unbind(1), own]

    def _propose(self, count: int) -> Proposal:
        """The draft's own draws, one after another."""
        rows, vocab = len(self.unread), self.draft.model.vocab_size
        ids, shares, unread = self.unread[:, :0], [], self.unread
        for _ in range(count):
            logits = self.draft.model.head(self.draft.hidden(Tokens(ids=unread))[:, -1:])
            shares.append(self._share(logits, ids, only_last=True)[:, 0])
            unread = drawn(shares[-1], self.choice.draws)[:, None]
            ids = torch.cat([ids, unread], 1)
        none = torch.zeros(rows, 0, vocab, device=ids.device)
        return Proposal(ids, torch.stack(shares, 1) if shares else none)

    def _share(self, logits: Tensor, ids: Tensor, only_last: bool = False) -> Tensor:
        """The distributions (b, n, vocab) of logits: one after each beginning of `ids`, or only the
        last one.
        """
        shaped, text = self.choice.shaped, self.choice.text
        if text is None:  # each is shaped on its own
            scores = shaped(logits.flatten(0, 1), None).view_as(logits)
        else:
            ends = [ids.shape[1]] if only_last else range(logits.shape[1])
            behind = [torch.cat([text, ids[:, :n]], 1) for n in ends]
            scores = torch.stack([shaped(logits[:, j], past) for j, past in enumerate(behind)], 1)
        if self.choice.how.greedy:
            return F.one_hot(scores.argmax(-1), scores.shape[-1]).float()
        return scores.float().softmax(-1)

    def _kept(self, proposal: Proposal, share: Tensor) -> Tensor:
        """How many of the proposed tokens each row keeps, (b,); one that has ended keeps all."""
        ids, count = proposal.ids[..., None], proposal.ids.shape[1]
        p, q = share[:, :count].gather(-1, ids)[..., 0], proposal.share.gather(-1, ids)[..., 0]
        kept = (_uniform(p, self.choice.draws) * q < p).long().cumprod(-1).sum(-1)
        ending = self.choice.ending
        return kept if ending is None else kept.masked_fill(ending.done, count)

    def _rewind(self, proposal: Proposal, kept: int, own: Tensor) -> None:
        """Remove the tokens that were not kept from the caches."""
        count = proposal.ids.shape[1]
        self.model.past.rewind(count - kept)
        if kept < count:
            self.draft.past.rewind(count - kept - 1)  # the last proposed token was never read
            self.unread = own[:, None]
        else:
            self.unread = torch.cat(
                [proposal.ids[:, -1:] if count else self.unread, own[:, None]], 1
            )


def _residual(proposal: Proposal, share: Tensor, at: int) -> Tensor:
    """The distribution of the token after the kept ones, (b, vocab): the positive part of p - q, or
    p if nothing was proposed.
    """
    if at == proposal.ids.shape[1]:
        return share[:, at]
    left = (share[:, at] - proposal.share[:, at]).clamp(min=0)
    # the sum is 0 if p is q: such a token is always kept
    return left.where(left.sum(-1, keepdim=True) > 0, share[:, at])


def _uniform(like: Tensor, draws: Draws) -> Tensor:
    """Draws from [0, 1), (b, k)."""
    if isinstance(draws, list):
        return torch.stack(
            [torch.rand(like.shape[1], generator=draw, device=like.device) for draw in draws]
        )
    return torch.rand(like.shape, generator=draws, device=like.device)


def check_draft(model: Any, draft: Any) -> None:
    """Raises ConfigError for a draft that cannot read or write what the model does."""
    if draft.vocab_size != model.vocab_size or draft.source_vocab_size != model.source_vocab_size:
        raise config_error(
            "draft",
            "must have the model's vocabulary",
            got=f"{draft.vocab_size} tokens and {model.vocab_size}",
        )
    if draft.names != model.names:
        theirs, ours = " and ".join(draft.names), " and ".join(model.names)
        raise config_error(
            "draft", "must have the model's stacks", got=f"{theirs}, and the model has {ours}"
        )
