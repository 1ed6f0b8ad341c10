"""Errors for components that return a tensor of another shape."""

from typing import Any, TypeVar

from torch import Tensor

from xformer_kit.registry import config_error

T = TypeVar("T", Tensor, tuple[Tensor, ...])


def same_shape(new: T, old: T, path: str, method: str) -> T:
    """Returns `new`, one tensor or several, which a method of the component at `path` returned.
    Raises ConfigError if its shape is not that of `old`, which the method was given.
    """
    if not _equal(new, old):
        rule = f"'{method}' must return the shape of what it is given, {_shape(old)}"
        raise config_error(path, rule, got=f"{_shape(new)}")
    return new


def _equal(new: Any, old: Any) -> bool:
    if isinstance(new, Tensor) and isinstance(old, Tensor):
        return new.shape == old.shape
    return _shape(new) == _shape(old)


def _shape(x: Any) -> Any:
    """A tuple for a tensor or for several; the name of the type of something else."""
    if isinstance(x, tuple):
        return _shape(x[0]) if len(x) == 1 else tuple(map(_shape, x))
    return tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
