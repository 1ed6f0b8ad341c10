"""The standard streams of a run, which goes on when nothing reads its output any more.

It imports only the standard library, so that the streams are replaced before torch is imported.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STREAMS = ("stdout", "stderr")
NO_READER = {errno.EPIPE, errno.EIO}  # a closed pipe, a closed terminal


class _Stream:
    """A text stream that discards its text from the moment when its reader has closed it."""

    def __init__(self, stream: Any):
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        self._call(self.stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._call(self.stream.flush)

    def _call(self, function: Any, *args: str) -> None:
        try:
            function(*args)
        except OSError as error:
            if error.errno not in NO_READER:
                raise
            discard(self.stream)


def discard(stream: Any) -> None:
    """Redirects a stream's file descriptor to the null device, for the processes that this one
    starts, too.
    """
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, stream.fileno())
    os.close(null_device)


def open_missing_streams() -> None:
    """Opens stdout and stderr on the null device if they were closed when the process started:
    Python has None in their place, and the next file would get their number.
    """
    for name in STREAMS:
        if getattr(sys, name) is None:  # the lowest free number is that of the stream
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


@contextmanager
def output_without_reader() -> Iterator[None]:
    """A context in which output that nothing reads any more is discarded, and is no error."""
    streams = {name: getattr(sys, name) for name in STREAMS}
    for name, stream in streams.items():
        setattr(sys, name, _Stream(stream))
    try:
        yield
    finally:
        for name, stream in streams.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)
