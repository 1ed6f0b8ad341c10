"""The errors of a command or a run for its values."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from xformer_kit.registry import ConfigError, Fault


def refuse(faults: Iterable[Fault]) -> None:
    """Raises ConfigError if there is any fault."""
    if every := list(faults):
        raise ConfigError(every)


def flag(name: str) -> str:
    """An option as a command line has it: batch_size -> --batch-size."""
    return f"--{name.replace('_', '-')}"


def too_small(given: Mapping[str, object], **least: int) -> Iterator[Fault]:
    """Faults of options of a command below their bound; None passes."""
    for name, bound in least.items():
        value = given.get(name)
        if isinstance(value, int) and value < bound:
            yield Fault(flag(name), f"must be at least {bound}", got=value)


@contextmanager
def faults_at(path: str) -> Iterator[None]:
    """Gives the faults of a ConfigError that is raised inside this path."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError([replace(fault, path=path) for fault in error.faults]) from None
