"""A context in which no module runs compiled."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

_depth = 0  # of nested contexts


@contextmanager
def uncompiled() -> Iterator[None]:
    """Runs modules without compilation in this context: for a replaced kernel, which a compiled
    block would not call, and for a few calls on another device or of other sizes, whose graphs take
    longer than the calls. The compiler, whose import takes seconds, is not imported if nothing is
    compiled.
    """
    global _depth
    imported = "torch._dynamo" in sys.modules
    _depth += 1
    try:
        with torch.compiler.set_stance("force_eager") if imported else nullcontext():
            yield
    finally:
        _depth -= 1


def is_uncompiled() -> bool:
    """Whether an `uncompiled` context is active, so that a kernel that is fast only when it is
    compiled is not used.
    """
    return _depth > 0
