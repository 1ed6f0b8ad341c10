"""Streams of a stack in one tensor, without a copy of all of them in each layer."""

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def packed(streams: Sequence[Tensor]) -> Tensor:
    """Returns the streams (b, t, dim) as one tensor (n, b, t, dim). What follows must not change it
    in place.

    The next call with these streams and more of them copies only the others: all are in one buffer,
    which the first stream holds. The gradients of the streams are views of that of the result.
    """
    first: Any = streams[0]
    buffer: Buffer | None = getattr(first, "_buffer_of_streams", None)
    if buffer is None or not buffer.begins(streams):
        buffer = first._buffer_of_streams = Buffer(first, len(streams))
    return _Packed.apply(buffer, *streams)


class Buffer:
    """Memory for streams, of which those that are written never change."""

    most = 8  # streams that a stack had until now: the next buffer has place for them

    def __init__(self, like: Tensor, count: int):
        room = Buffer.most if count <= Buffer.most else 2 * count
        self.values = like.new_empty(room, *like.shape)
        self.streams: list[weakref.ref[Tensor]] = []  # those that are written

    def begins(self, streams: Sequence[Tensor]) -> bool:
        """Whether the streams are those of the buffer, followed by others for which it has place.
        Else writing would change what an earlier layer needs in its backward pass.
        """
        written = [reference() for reference in self.streams]
        return (
            len(written) <= len(streams) <= len(self.values)
            and all(a is b for a, b in zip(written, streams, strict=False))
            and streams[-1].shape == self.values.shape[1:]
        )

    def write(self, streams: Sequence[Tensor]) -> Tensor:
        """Writes those that are new. Returns all of them, as a tensor whose version later writes do
        not change: they are to other places.
        """
        Buffer.most = max(Buffer.most, len(streams))
        for at in range(len(self.streams), len(streams)):
            self.values.data[at].copy_(streams[at].detach())
            self.streams.append(weakref.ref(streams[at]))
        return self.values.data[: len(streams)]


class _Packed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, buffer: Buffer, *streams: Tensor) -> Tensor:
        return buffer.write(streams)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        return None, *gradient.unbind()
