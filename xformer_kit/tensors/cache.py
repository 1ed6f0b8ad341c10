"""Caches of one sublayer or extra in generation."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from xformer_kit.registry import config_error


class Cache:
    """Base of all caches: what an attention keeps of the tokens so far, or of a source, in
    generation.

    can_rewind: whether `rewind` can remove the newest tokens.
    length: number of cached tokens.
    tensors: what it keeps, e.g. keys and values.
    """

    tensors: Sequence[Tensor]
    can_rewind = True
    length = 0

    def append(self, *new: Tensor) -> Any:
        """Appends tensors of new tokens; returns those of all cached tokens."""
        raise NotImplementedError

    def select(self, rows: Tensor) -> None:
        """Keeps these rows of the batch, in this order (beam search)."""
        self.tensors = [tensor.index_select(0, rows) for tensor in self.tensors]

    def rewind(self, n: int) -> None:
        """Removes the newest n tokens. Raises ConfigError if that is impossible, as it does here
        without `can_rewind`.
        """
        if self.can_rewind:
            raise NotImplementedError
        if n:
            raise config_error(
                "rewind",
                "a state is one sum of the whole past, from which the newest tokens cannot be"
                " removed",
                got=f"{n} tokens",
                fix="Begin again with the prompt, or choose attn=multi_head.",
            )

    def each(self) -> "list[Cache]":
        """The caches that are selected, rewound and counted: this one, or its parts."""
        return [self]

    @property
    def bytes(self) -> int:
        """Allocated bytes."""
        return sum(tensor.nbytes for tensor in self.tensors)


class KeyValueCache(Cache):
    """Tensors with the same rows and time axis, e.g. keys and values (rows, kv_heads, length,
    head_dim).

    Memory for `length` tokens is allocated at the start; each step writes in place.
    """

    def __init__(self, *shapes: tuple[int, ...], dtype: torch.dtype, device: torch.device):
        self.tensors: list[Tensor] = [
            torch.empty(shape, dtype=dtype, device=device) for shape in shapes
        ]
        self.spare: list[Tensor | None] = [None] * len(shapes)
        self.length = 0

    @classmethod
    def of(cls, module: nn.Module, *shapes: tuple[int, ...]) -> Self:
        """An empty cache with the device and dtype of a module's parameters."""
        like = next(module.parameters())
        return cls(*shapes, dtype=like.dtype, device=like.device)

    def append(self, *new: Tensor) -> list[Tensor]:
        """Appends (rows, ..., t, d); returns the tensors of all tokens, (rows, ..., length, d)."""
        self._write(new)
        length = self.length
        return [tensor.narrow(-2, 0, length) for tensor in self.tensors]

    def _write(self, new: tuple[Tensor, ...]) -> None:
        """Copies tensors of new tokens after the cached ones."""
        if self.tensors[0].dtype != new[0].dtype:  # under autocast
            self.tensors = [x.to(y.dtype) for x, y in zip(self.tensors, new, strict=True)]
        start, count = self.length, new[0].shape[-2]
        self.length = start + count
        for tensor, added in zip(self.tensors, new, strict=True):
            tensor.narrow(-2, start, count).copy_(added)

    def kept(self) -> list[Tensor]:
        """Returns the tensors of all cached tokens, (rows, ..., length, d)."""
        return [tensor.narrow(-2, 0, self.length) for tensor in self.tensors]

    def select(self, rows: Tensor) -> None:
        """Copies the cached tokens of these rows into the buffer of the previous copy: beam search
        does so at each step.
        """
        for i, (tensor, kept) in enumerate(zip(self.tensors, self.kept(), strict=True)):
            target = self.spare[i]
            if target is None or target.shape[0] != len(rows) or target.dtype != tensor.dtype:
                target = tensor.new_empty((len(rows), *tensor.shape[1:]))
            selected = target.narrow(-2, 0, self.length)
            if tensor.requires_grad:
                selected.copy_(kept[rows])
            else:
                torch.index_select(kept, 0, rows, out=selected)
            self.tensors[i], self.spare[i] = target, tensor

    def rewind(self, n: int) -> None:
        self.length -= n

    @property
    def bytes(self) -> int:
        return super().bytes + sum(spare.nbytes for spare in self.spare if spare is not None)


class WindowCache(KeyValueCache):
    """A cache for attention within a window: a token attends to at most the `window_left` tokens
    before it, and older ones are dropped.

    When the buffer is full, its newest tokens are copied to the front of another one. REWIND_MARGIN
    tokens more than the window are kept, so that as many can be removed. Memory is independent of
    the length.
    """

    REWIND_MARGIN = 32  # tokens

    def __init__(self, tensors: list[Tensor], window_left: int):
        self.tensors = tensors
        self.window_left = window_left
        self.spare = [None] * len(tensors)
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
        count, capacity = new[0].shape[-2], self.tensors[0].shape[-2]
        self.total += count
        if self.length + count > capacity:
            self._discard_old(self.window_left + self.REWIND_MARGIN)
        if self.length + count > capacity:
            return self._append_long(new)
        self._write(new)
        visible = min(self.length, self.window_left + count)
        return [tensor.narrow(-2, self.length - visible, visible) for tensor in self.tensors]

    def _discard_old(self, count: int) -> None:
        """Keeps the newest `count` tokens, at the front of the buffer."""
        count = min(count, self.length)
        self._begin_again(*(kept.narrow(-2, self.length - count, count) for kept in self.kept()))

    def _append_long(self, new: tuple[Tensor, ...]) -> list[Tensor]:
        """Appends more tokens than the buffer holds, e.g. of a long prompt: returns all of them and
        keeps the newest.
        """
        pairs = zip(self.kept(), new, strict=True)
        joined = [torch.cat([kept.to(added.dtype), added], -2) for kept, added in pairs]
        length = joined[0].shape[-2]
        stored = min(length, self.window_left + self.REWIND_MARGIN)
        visible = min(length, self.window_left + new[0].shape[-2])
        self._begin_again(*(x.narrow(-2, length - stored, stored) for x in joined))
        return [x.narrow(-2, length - visible, visible) for x in joined]

    def _begin_again(self, *newest: Tensor) -> None:
        """Keeps only these tensors, in new buffers: a call that is refused needs the old ones."""
        self.tensors = [torch.empty_like(tensor) for tensor in self.tensors]
        self.length = 0
        self._write(newest)

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


class FullLengthCache(KeyValueCache):
    """A cache that returns the tensors of its full length. at: the slot of the new token, (1,)."""

    def __init__(self, like: KeyValueCache, at: Tensor):
        self.tensors = [torch.zeros_like(tensor) for tensor in like.tensors]
        self.at, self.length = at, like.length

    def append(self, *new: Tensor) -> list[Tensor]:
        for tensor, added in zip(self.tensors, new, strict=True):
            tensor.index_copy_(-2, self.at, added.to(tensor.dtype))
        return self.tensors


class StateCache(Cache):
    """A state of the whole past: tensors (rows, ...) whose sizes do not depend on the number of
    tokens.
    """

    can_rewind = False

    def __init__(self, *tensors: Tensor):
        self.tensors = list(tensors)
        # of a source with documents: the document of each tensor
        self.documents: Tensor | None = None

    @classmethod
    def of(cls, module: nn.Module, *shapes: tuple[int, ...]) -> "StateCache":
        """A cache of zeros, in at least fp32, on the device of a module's parameters."""
        like = next(module.parameters())
        wide = torch.promote_types(like.dtype, torch.float32)
        return cls(*(torch.zeros(shape, dtype=wide, device=like.device) for shape in shapes))

    def append(self, *new: Tensor) -> list[Tensor]:
        """Replaces the cached tensors."""
        self.tensors = list(new)
        return self.tensors


class JointCache(Cache):
    """Several caches of one sublayer, `parts`; a part that is None keeps nothing."""

    def __init__(self, *parts: Cache | None):
        self.parts = parts

    def each(self) -> list[Cache]:
        return [part for part in self.parts if part is not None]
