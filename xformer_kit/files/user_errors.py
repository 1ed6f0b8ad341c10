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
        own = [(path, component) for path, component in components if is_users(component)]
        for find in (lines_of, lines_of_file):  # a file may have several components
            for path, component in own:
                if lines := find(error, component):
                    raise config_error(
                        path,
                        f"{component.__name__} must not raise an exception",
                        f"{type(error).__name__}: {one_line(error, 120)}",
                        f"See line {lines[-1]} of '{inspect.getfile(component)}'.",
                    ) from None
        raise


def lines_of(error: BaseException, component: Any) -> list[int]:
    """Returns the lines of the component that an exception has passed, the last one last; none if
    no class statement made it.
    """
    try:
        source, first = inspect.getsourcelines(component)
    except OSError:
        return []
    lines = lines_of_file(error, component)
    return [line for line in lines if first <= line < first + len(source)]


def lines_of_file(error: BaseException, component: Any) -> list[int]:
    """Returns the lines of the component's file that an exception has passed."""
    file, frames = inspect.getfile(component), traceback.extract_tb(error.__traceback__)
    return [frame.lineno for frame in frames if frame.filename == file and frame.lineno]


def raised(error: BaseException, component: Any) -> str:
    """Returns "raised TypeError: text, in line 7" of an exception, with the last line of the
    component's file that it has passed, if any.
    """
    lines = lines_of_file(error, component)
    line = f", in line {lines[-1]}" if lines else ""
    return f"raised {type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}{line}"
