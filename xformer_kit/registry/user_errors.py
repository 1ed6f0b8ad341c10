"""Exceptions in the files of a user's components, as faults of the config."""

import inspect
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from xformer_kit.registry.fault import ConfigError, config_error
from xformer_kit.registry.messages import one_line


def is_users(component: Any) -> bool:
    """Whether a component is not one of this package."""
    return not component.__module__.startswith("xformer_kit.")


@contextmanager
def user_errors(components: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """Raises ConfigError, with the line, in place of an exception in the file of a user's
    component. components: (config path, class) each.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        for path, component in components:
            file = inspect.getfile(component) if is_users(component) else None
            if lines := [frame.lineno for frame in frames if frame.filename == file]:
                raise config_error(
                    path,
                    f"{component.__name__} must not raise an exception",
                    f"{type(error).__name__}: {one_line(error, 120)}",
                    f"See line {lines[-1]} of '{file}'.",
                ) from None
        raise
