"""How the weights of a published file are laid out, and ours: both directions of each layout.

A layout reads a list of tensors of a file and returns ours, and writes ours back, element for
element. Shapes: out and in are the two axes of a linear map, as torch.nn.Linear has them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class Heads:
    """The heads of an attention."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.kv_heads


class Layout:
    """As it is: each tensor of a file is one of ours."""

    def read(self, tensors: Tensors, rows: Sequence[int], heads: Heads) -> list[Tensor]:
        """Returns our tensors of those of a file. rows: lengths of the first axis of ours."""
        return list(tensors)

    def write(self, tensors: Tensors, heads: Heads) -> list[Tensor]:
        """Returns the tensors of a file of ours."""
        return list(tensors)

    def __or__(self, other: "Layout") -> "Layout":
        """One layout after another, in the order of reading."""
        return Chain(self, other)


@dataclass(frozen=True)
class Chain(Layout):
    """Two layouts, one after the other."""

    first: Layout
    second: Layout

    def read(self, tensors, rows, heads):
        return self.second.read(self.first.read(tensors, rows, heads), rows, heads)

    def write(self, tensors, heads):
        return self.first.write(self.second.write(tensors, heads), heads)


@dataclass(frozen=True)
class EachTensor(Layout):
    """A function of each tensor, and its inverse."""

    of_theirs: Callable[[Tensor], Tensor]
    of_ours: Callable[[Tensor], Tensor]

    def read(self, tensors, rows, heads):
        return [self.of_theirs(tensor) for tensor in tensors]

    def write(self, tensors, heads):
        return [self.of_ours(tensor) for tensor in tensors]


class Concatenated(Layout):
    """One tensor of a file holds ours one after the other along the first axis."""

    def read(self, tensors, rows, heads):
        return list(tensors[0].split(list(rows)))

    def write(self, tensors, heads):
        return [torch.cat(list(tensors))]


class ConcatenatedOutputs(Layout):
    """One tensor of a file holds ours, which have one shape, one after the other along the last
    axis but one: that of outputs, also if experts come before it.
    """

    def read(self, tensors, rows, heads):
        return list(tensors[0].chunk(len(rows), -2))

    def write(self, tensors, heads):
        return [torch.cat(list(tensors), -2)]


@dataclass(frozen=True)
class Interleaved(Layout):
    """One tensor of a file holds `count` of ours row by row: rows 0, count, 2 count, ... are the
    first.
    """

    count: int = 2

    def read(self, tensors, rows, heads):
        return [tensors[0][at :: self.count] for at in range(self.count)]

    def write(self, tensors, heads):
        return [torch.stack(list(tensors), 1).flatten(0, 1)]


class PerHead(Layout):
    """Queries, keys and values of each head one after the other, (heads, 3, head_dim) along the
    first axis; with fewer key heads those of each group, (kv_heads, group + 2, head_dim).
    """

    def read(self, tensors, rows, heads):
        (whole,) = tensors
        split = whole.unflatten(0, (heads.kv_heads, heads.group + 2, heads.head_dim))
        parts = split.split([heads.group, 1, 1], 1)
        return [part.flatten(0, 2) for part in parts]

    def write(self, tensors, heads):
        counts = heads.group, 1, 1
        split = [
            tensor.unflatten(0, (heads.kv_heads, count, heads.head_dim))
            for tensor, count in zip(tensors, counts, strict=True)
        ]
        return [torch.cat(split, 1).flatten(0, 2)]


class KeysAndValues(Layout):
    """Rows of each head of several of ours one after the other along the first axis, such as
    head_dim of keys and v_head_dim of values (DeepSeek-V2: kv_b_proj).
    """

    def read(self, tensors, rows, heads):
        split = tensors[0].unflatten(0, (heads.heads, -1))
        counts = [count // heads.heads for count in rows]
        return [part.flatten(0, 1) for part in split.split(counts, 1)]

    def write(self, tensors, heads):
        split = [tensor.unflatten(0, (heads.heads, -1)) for tensor in tensors]
        return [torch.cat(split, 1).flatten(0, 1)]


class Stacked(Layout):
    """Each row of ours along the first axis is a tensor of the file: the experts of a mixture."""

    def read(self, tensors, rows, heads):
        return [torch.stack(list(tensors))]

    def write(self, tensors, heads):
        return list(tensors[0])


class Rows(Layout):
    """Each row of the file's tensor along the first axis is one of ours."""

    def read(self, tensors, rows, heads):
        return list(tensors[0])

    def write(self, tensors, heads):
        return [torch.stack(list(tensors))]


SAME = Layout()
TRANSPOSED = EachTensor(lambda x: x.mT, lambda x: x.mT)
CONCATENATED = Concatenated()
CONCATENATED_OUTPUTS = ConcatenatedOutputs()
INTERLEAVED = Interleaved()
PER_HEAD = PerHead()
KEYS_AND_VALUES = KeysAndValues()
STACKED = Stacked()
ROWS = Rows()
ONE_ROW = EachTensor(lambda x: x[0], lambda x: x[None])  # (1, n) is (n,)
