"""Caches of one sublayer in generation."""

from typing import Any

import torch
from torch import Tensor

from xformer_kit.registry import config_error


class Cache:
    """What one call of an attention keeps of the past, or of a source, for generation.

    rewinds: whether the newest tokens can be forgotten. length: tokens of which it holds something.
    """

    rewinds = True
    length = 0

    def append(self, *new: Tensor) -> Any:
        """Keep what belongs to the newest tokens; returns all that is kept."""
        raise NotImplementedError

    def select(self, rows: Tensor) -> None:
        """Go on with these rows of the batch, in this order (beam search)."""
        raise NotImplementedError

    def rewind(self, n: int) -> None:
        """Forget the newest n tokens. Raises ConfigError where the past cannot be told apart."""
        raise NotImplementedError

    @property
    def bytes(self) -> int:
        """Bytes held."""
        raise NotImplementedError


class KeyValueCache(Cache):
    """Any number of tensors with the same rows and time axis, e.g. keys and values (rows, kv,
    length, head_dim).

    The room for `length` tokens is taken at once, so that a step writes in place.
    """

    def __init__(self, *shapes: tuple[int, ...], dtype: torch.dtype, device: torch.device):
        self.held = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
        self.spare: list[Tensor | None] = [None] * len(shapes)
        self.length = 0

    def append(self, *new: Tensor) -> list[Tensor]:
        """Each (rows, ..., t, d); returns what is held so far, (rows, ..., length, d)."""
        self._write(new)
        return self.kept()

    def _write(self, new: tuple[Tensor, ...]) -> None:
        if (
            self.held[0].dtype != new[0].dtype
        ):  # computed in another precision than the weights are kept in
            self.held = [held.to(fresh.dtype) for held, fresh in zip(self.held, new, strict=True)]
        start, self.length = self.length, self.length + new[0].shape[-2]
        for held, fresh in zip(self.held, new, strict=True):
            held.narrow(-2, start, fresh.shape[-2]).copy_(fresh)

    def kept(self) -> list[Tensor]:
        """What is held so far, (rows, ..., length, d)."""
        return [held.narrow(-2, 0, self.length) for held in self.held]

    def select(self, rows: Tensor) -> None:
        """What is held is copied, without the room behind it, into the room of the last copy: a
        beam does so at each step.
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
    """The same where no token is seen from more than `left` tokens behind it: older ones leave.

    It is a ring that is read in order: when its room is full, the newest tokens move to the front.
    `rewound` tokens more than are seen stay, so that as many can be forgotten. Its room does not
    grow with the text.
    """

    rewound = 32  # tokens

    def __init__(self, held: list[Tensor], left: int):
        self.held = held
        self.left = left
        self.spare = [None] * len(held)
        self.length = 0  # tokens held
        self.seen = 0  # tokens that came

    @classmethod
    def room(cls, left: int) -> int:
        """Tokens that it has room for: twice what must stay, so that a token is moved once on
        average.
        """
        return 2 * (left + cls.rewound)

    def append(self, *new: Tensor) -> list[Tensor]:
        """Each (rows, ..., t, d); returns what the new tokens may see and themselves, (rows, ...,
        at most left + t, d).
        """
        count, room = new[0].shape[-2], self.held[0].shape[-2]
        self.seen += count
        if self.length + count > room:
            self._move(self.left + self.rewound)
        if self.length + count > room:
            return self._long(new)
        self._write(new)
        seen = min(self.length, self.left + count)
        return [held.narrow(-2, self.length - seen, seen) for held in self.held]

    def _move(self, stay: int) -> None:
        """The newest tokens to the front, and the others away."""
        stay = min(stay, self.length)
        for held in self.held:
            newest = held.narrow(-2, self.length - stay, stay)
            held.narrow(-2, 0, stay).copy_(newest.clone())  # the two may overlap
        self.length = stay

    def _long(self, new: tuple[Tensor, ...]) -> list[Tensor]:
        """More tokens at once than there is room for, as of a long prompt: they are seen, and the
        newest stay.
        """
        past = [kept.to(fresh.dtype) for kept, fresh in zip(self.kept(), new, strict=True)]
        whole = [torch.cat(pair, -2) for pair in zip(past, new, strict=True)]
        length = whole[0].shape[-2]
        stay, seen = (
            min(length, self.left + self.rewound),
            min(length, self.left + new[0].shape[-2]),
        )
        self.length = 0
        self._write(tuple(field.narrow(-2, length - stay, stay) for field in whole))
        return [field.narrow(-2, length - seen, seen) for field in whole]

    def rewind(self, n: int) -> None:
        able = self.length if self.seen == self.length else max(0, self.length - self.left)
        if n > able:
            raise config_error(
                "rewind",
                f"a cache that keeps a window of {self.left + 1} tokens can go back by {able} here",
                got=n,
                fix="Rewind by fewer tokens, or begin again with the prompt.",
            )
        self.length, self.seen = self.length - n, self.seen - n
