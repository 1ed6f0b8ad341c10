"""Helpers for the faults of a command's options."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from xformer_kit.registry import ConfigError, Fault

# Option of `xformer_kit.generate` -> option of the command line with another name.
RENAMED_OPTIONS = {"num_return": "num_samples", "allowed": "constrain"}


def refuse(faults: Iterable[Fault]) -> None:
    """Raises ConfigError with all faults, if there are any."""
    if found := list(faults):
        raise ConfigError(found)


def refuse_options(faults: Iterable[Fault]) -> None:
    """Raises ConfigError with the first fault of each option, if there are any."""
    found: dict[str, Fault] = {}
    for fault in faults:
        found.setdefault(fault.path, fault)
    refuse(found.values())


def flag(name: str) -> str:
    """Returns an option as it is typed on a command line: batch_size -> --batch-size."""
    return f"--{name.replace('_', '-')}"


def too_small(options: Mapping[str, object], **minimums: int) -> Iterator[Fault]:
    """Yields a fault for each option of a command that is an integer below its minimum."""
    for name, minimum in minimums.items():
        value = options.get(name)
        if isinstance(value, int) and value < minimum:
            fix = "Leave it out to draw from all tokens." if name == "top_k" else ""
            yield Fault(flag(name), f"must be at least {minimum}", got=value, fix=fix)


def out_of_range(options: Mapping[str, object]) -> Iterator[Fault]:
    """Yields a fault for each number of a decoding that is outside of its range."""
    from xformer_kit.generate.options import range_faults

    renamed = {name: options.get(option) for name, option in RENAMED_OPTIONS.items()}
    for fault in range_faults({**options, **renamed}):
        yield replace(fault, path=flag(RENAMED_OPTIONS.get(fault.path, fault.path)))


@contextmanager
def collect(faults: list[Fault]) -> Iterator[None]:
    """A context that adds the faults of a ConfigError raised in it to a list."""
    try:
        yield
    except ConfigError as error:
        faults += error.faults


@contextmanager
def faults_at(path: str) -> Iterator[None]:
    """A context that sets the path of the faults of a ConfigError raised in it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError([replace(fault, path=path) for fault in error.faults]) from None
