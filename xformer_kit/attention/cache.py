"""Caches that several attentions share."""

import torch
from torch import Tensor

from xformer_kit.attention.base import Cache


class KeyValueCache(Cache):
    """Any number of tensors with the same rows and time axis, e.g. keys and values (rows, kv, length, head_dim).

    The room for `length` tokens is taken at once, so that a step writes in place.
    """

    def __init__(self, *shapes: tuple[int, ...], dtype: torch.dtype, device: torch.device):
        self.held = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
        self.spare: list[Tensor | None] = [None] * len(shapes)
        self.length = 0

    def append(self, *new: Tensor) -> list[Tensor]:
        """Each (rows, ..., t, d); returns what is held so far, (rows, ..., length, d)."""
        if self.held[0].dtype != new[0].dtype:  # computed in another precision than the weights are kept in
            self.held = [held.to(fresh.dtype) for held, fresh in zip(self.held, new, strict=True)]
        start, self.length = self.length, self.length + new[0].shape[-2]
        for held, fresh in zip(self.held, new, strict=True):
            held.narrow(-2, start, fresh.shape[-2]).copy_(fresh)
        return self.kept()

    def kept(self) -> list[Tensor]:
        """What is held so far, (rows, ..., length, d)."""
        return [held.narrow(-2, 0, self.length) for held in self.held]

    def select(self, rows: Tensor) -> None:
        """What is held is copied, without the room behind it, into the room of the last copy: a beam does so at each step."""
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
        return sum(held.numel() * held.element_size() for held in (*self.held, *self.spare) if held is not None)
