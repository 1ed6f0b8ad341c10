"""Caches of one attention in generation."""

from typing import Any

import torch
from torch import Tensor

from xformer_kit.registry import config_error


class Cache:
    """Base of all caches: what an attention keeps in generation of the tokens so far, or of a
    source.

    can_rewind: whether `rewind` can remove the newest tokens. length: number of cached tokens.
    """

    can_rewind = True
    length = 0

    def append(self, *new: Tensor) -> Any:
        """Appends tensors of new tokens; returns those of all cached tokens."""
        raise NotImplementedError

    def select(self, rows: Tensor) -> None:
        """Keeps these rows of the batch, in this order (beam search)."""
        raise NotImplementedError

    def rewind(self, n: int) -> None:
        """Removes the newest n tokens. Raises ConfigError if that is impossible."""
        raise NotImplementedError

    @property
    def bytes(self) -> int:
        """Allocated bytes."""
        raise NotImplementedError


class KeyValueCache(Cache):
    """Tensors with the same rows and time axis, e.g. keys and values (rows, kv_heads, length,
    head_dim).

    Memory for `length` tokens is allocated at the start; each step writes in place.
    """

    def __init__(self, *shapes: tuple[int, ...], dtype: torch.dtype, device: torch.device):
        self.held = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
        self.spare: list[Tensor | None] = [None] * len(shapes)
        self.length = 0

    def append(self, *new: Tensor) -> list[Tensor]:
        """Appends (rows, ..., t, d); returns the tensors of all tokens, (rows, ..., length, d)."""
        self._write(new)
        return self.kept()

    def _write(self, new: tuple[Tensor, ...]) -> None:
        if self.held[0].dtype != new[0].dtype:  # under autocast
            self.held = [held.to(fresh.dtype) for held, fresh in zip(self.held, new, strict=True)]
        start, self.length = self.length, self.length + new[0].shape[-2]
        for held, fresh in zip(self.held, new, strict=True):
            held.narrow(-2, start, fresh.shape[-2]).copy_(fresh)

    def kept(self) -> list[Tensor]:
        """Returns the tensors of all cached tokens, (rows, ..., length, d)."""
        return [held.narrow(-2, 0, self.length) for held in self.held]

    def select(self, rows: Tensor) -> None:
        """Copies the cached tokens of these rows into the buffer of the previous copy: beam search
        does so at each step.
        """
        for at, (held, kept) in enumerate(zip(self.held, self.kept(), strict=True)):
            fresh = self.spare[at]
            if fresh is None or fresh.shape[0] != len(rows) or fresh.dtype != held.dtype:
                fresh = held.new_empty((len(rows), *held.shape[1:]))
            if held.requires_grad:
                fresh.narrow(-2, 0, self.length).copy_(kept[rows])
            else:
                torch.index_select(kept, 0, rows, out=fresh.narrow(-2, 0, self.length))
            self.held[at], self.spare[at] = fresh, held

    def rewind(self, n: int) -> None:
        self.length -= n

    @property
    def bytes(self) -> int:
        return sum(
            held.numel() * held.element_size()
            for held in (*self.held, *self.spare)
            if held is not None
        )


class WindowCache(KeyValueCache):
    """A cache for attention within a window: a token attends to at most the `window_left` tokens
    before it, and older ones are dropped.

    When the buffer is full, its newest tokens are copied to the front. REWIND_MARGIN tokens more
    than the window are kept, so that as many can be removed. Memory is independent of the length.
    """

    REWIND_MARGIN = 32  # tokens

    def __init__(self, held: list[Tensor], window_left: int):
        self.held = held
        self.window_left = window_left
        self.spare = [None] * len(held)
        self.length = 0  # tokens in the buffer
        self.total = 0  # tokens appended so far

    @classmethod
    def capacity(cls, window_left: int) -> int:
        """Tokens in its buffer: twice as many as must be kept, so that each token is copied to the
        front once on average.
        """
        return 2 * (window_left + cls.REWIND_MARGIN)

    def append(self, *new: Tensor) -> list[Tensor]:
        """Appends tensors (rows, ..., t, d); returns those of the new tokens after the tokens that
        they may attend to, (rows, ..., at most window_left + t, d).
        """
        count, capacity = new[0].shape[-2], self.held[0].shape[-2]
        self.total += count
        if self.length + count > capacity:
            self._discard_old(self.window_left + self.REWIND_MARGIN)
        if self.length + count > capacity:
            return self._append_long(new)
        self._write(new)
        visible = min(self.length, self.window_left + count)
        return [held.narrow(-2, self.length - visible, visible) for held in self.held]

    def _discard_old(self, count: int) -> None:
        """Keeps the newest `count` tokens, at the front of the buffer."""
        count = min(count, self.length)
        for held in self.held:
            newest = held.narrow(-2, self.length - count, count)
            held.narrow(-2, 0, count).copy_(newest.clone())  # the two may overlap
        self.length = count

    def _append_long(self, new: tuple[Tensor, ...]) -> list[Tensor]:
        """Appends more tokens than the buffer holds, e.g. of a long prompt: returns all of them and
        keeps the newest.
        """
        past = [kept.to(fresh.dtype) for kept, fresh in zip(self.kept(), new, strict=True)]
        joined = [torch.cat(pair, -2) for pair in zip(past, new, strict=True)]
        length = joined[0].shape[-2]
        stored = min(length, self.window_left + self.REWIND_MARGIN)
        visible = min(length, self.window_left + new[0].shape[-2])
        self.length = 0
        self._write(tuple(field.narrow(-2, length - stored, stored) for field in joined))
        return [field.narrow(-2, length - visible, visible) for field in joined]

    def rewind(self, n: int) -> None:
        limit = self.length if self.total == self.length else max(0, self.length - self.window_left)
        if n > limit:
            raise config_error(
                "rewind",
                f"a cache with a window of {self.window_left + 1} tokens can remove {limit} here",
                got=n,
                fix="Rewind by fewer tokens, or begin again with the prompt.",
            )
        self.length -= n
        self.total -= n
