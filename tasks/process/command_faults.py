"""Helpers for the faults of a command's options."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from xformer_kit.registry import ConfigError, Fault

# Option of `xformer_kit.generate` -> flag with another name.
OTHER_NAMES = {"num_return": "--num-samples", "allowed": "--constrain"}


def refuse(faults: Iterable[Fault]) -> None:
    """Raises ConfigError with all faults, if there are any."""
    if found := list(faults):
        raise ConfigError(found)


def flag(name: str) -> str:
    """Returns an option as it is typed on a command line: batch_size -> --batch-size."""
    return f"--{name.replace('_', '-')}"


def too_small(options: Mapping[str, object], **minimums: int) -> Iterator[Fault]:
    """Yields a fault for each option of a command that is an integer below its minimum."""
    for name, minimum in minimums.items():
        value = options.get(name)
        if isinstance(value, int) and value < minimum:
            yield Fault(flag(name), f"must be at least {minimum}", got=value)


@contextmanager
def collect(faults: list[Fault]) -> Iterator[None]:
    """A context that adds the faults of a ConfigError raised in it to a list."""
    try:
        yield
    except ConfigError as error:
        faults += error.faults


@contextmanager
def changed_faults(change: Callable[[Fault], Fault]) -> Iterator[None]:
    """A context that changes the faults of a ConfigError raised in it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(map(change, error.faults)) from None


def faults_at(path: str) -> AbstractContextManager[None]:
    """A context that sets the path of the faults of a ConfigError raised in it."""
    return changed_faults(lambda fault: replace(fault, path=path))


def faults_at_flags(options: Iterable[str]) -> AbstractContextManager[None]:
    """A context in which the path of a fault of `xformer_kit.generate` becomes the flag of a
    command with these options.
    """
    flags = {name: flag(name) for name in options} | OTHER_NAMES
    return changed_faults(lambda fault: replace(fault, path=flags.get(fault.path, fault.path)))
