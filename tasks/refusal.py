"""The errors of a command or a run for its values."""

from collections.abc import Iterator, Mapping

from xformer_kit.registry import ConfigError, Fault


def refusal(path: object, rule: str, got: object = "", fix: str = "") -> ConfigError:
    """The ConfigError of one fault, see `xformer_kit.registry.Fault`."""
    return ConfigError(Fault(f"{path}", rule, f"{got}", fix))


def flag(name: str) -> str:
    """An option as a command line has it: batch_size -> --batch-size."""
    return f"--{name.replace('_', '-')}"


def below_one(given: Mapping[str, object], *names: str) -> Iterator[Fault]:
    """Faults of options of a command that must be at least 1; None passes."""
    for name in names:
        value = given.get(name)
        if isinstance(value, int) and value < 1:
            yield Fault(flag(name), "must be at least 1", got=f"{value}")
