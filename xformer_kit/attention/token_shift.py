"""Channels of earlier tokens in the place of a token's own."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention.cache import KeyValueCache
from xformer_kit.model.tokens import Tokens


class Before(NamedTuple):
    """Where the tokens before each token stand, n = 1, 2, ... of them back, among all that are
    read; and whether there are
    any: each (n, b, t)."""

    at: Tensor
    there: Tensor


class TokenShift(nn.Module):
    """Channels in `tokens` + 1 parts of equal size: of part n a token has those of the n-th real
    token before it in its document, or 0 where there is none. Channels that are left over stay
    (BlinkDL, https://github.com/BlinkDL/minGPT-tuned; x-transformers' shift_tokens, which counts
    padding too).
    """

    def __init__(self, dim: int, tokens: int):
        super().__init__()
        self.tokens = tokens
        self.part = dim // (tokens + 1)

    def before(self, key: Tokens, queries: int) -> Before | None:
        """For the newest `queries` of these tokens; None where all of them are real and of one
        document.
        """
        if key.real is None and key.document is None:
            return None
        fields = [field for field in (key.real, key.document) if field is not None]
        place = torch.arange(key.length, device=fields[0].device).expand(max(map(len, fields)), -1)
        real = place if key.real is None else place.masked_fill(~key.real, -1)
        last = F.pad(
            real.cummax(-1).values[:, :-1], (1, 0), value=-1
        )  # the last real token before each
        at = [last]
        for _ in range(1, self.tokens):
            at.append(last.gather(1, at[-1].clamp_min(0)).masked_fill(at[-1] < 0, -1))
        found = torch.stack(at)[..., -queries:]
        there, found = found >= 0, found.clamp_min(0)
        if key.document is not None:
            document = key.document.expand_as(place)
            of = document.expand(self.tokens, -1, -1).gather(-1, found)
            there = there & (of == document[:, -queries:])
        return Before(found, there)

    def forward(
        self, x: Tensor, before: Before | None = None, cache: KeyValueCache | None = None
    ) -> Tensor:
        """x (b, t, dim) -> the same shape; what later tokens need of it goes to the cache."""
        own, moved, rest = x.split(
            [self.part, self.tokens * self.part, x.shape[-1] - (self.tokens + 1) * self.part], -1
        )
        whole = (
            moved if cache is None else cache.append(moved[:, None])[0][:, 0]
        )  # (b, past + t, tokens * part)
        parts = enumerate(whole.split(self.part, -1), 1)
        if before is None:
            found = [_back(part, n, x.shape[1]) for n, part in parts]
        else:
            found = [_taken(part, before.at[n - 1], before.there[n - 1]) for n, part in parts]
        return torch.cat([own, *found, rest], -1)

    def cache(self, rows: int, length: int, like: Tensor) -> KeyValueCache:
        shape = rows, 1, length, self.tokens * self.part
        return KeyValueCache(shape, dtype=like.dtype, device=like.device)

    def extra_repr(self) -> str:
        return f"tokens={self.tokens}"


def _back(x: Tensor, n: int, newest: int) -> Tensor:
    """The tokens n before the `newest` ones of x (b, t, c); zeros where there are none."""
    end, start = max(x.shape[1] - n, 0), x.shape[1] - n - newest
    return x[:, start:end] if start >= 0 else F.pad(x[:, :end], (0, 0, newest - end, 0))


def _taken(x: Tensor, at: Tensor, there: Tensor) -> Tensor:
    """Tokens of x (b, t, c) by their numbers (b or 1, n), 0 where they are not there."""
    at, there = (field.expand(len(x), -1)[..., None] for field in (at, there))
    return x.gather(1, at.expand(-1, -1, x.shape[-1])) * there
