"""Faults of a config, a command or a file, and the error that carries them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from xformer_kit.text.printable import printable


def format_value(value: Any) -> str:
    """Formats a value for a message as YAML: null, true, 'a text', [1, 2], {a: 1}."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {format_value(v)}" for key, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(format_value, value))}]"
    return repr(value)


@dataclass(frozen=True)
class Fault:
    """A rule that a value of a config, an option of a command or a file breaks.

    As text: "{path}: {rule}; got {got}. {fix}"
    """

    # Config path of the value, or the option, or the file. A component yields the path inside its
    # own node, "" for the component itself; the registry and the plan complete it with `at`.
    path: str
    rule: str  # the rule, or why the value has no effect, without a full stop
    got: Any = ""  # the value, stored as formatted by `format_value`, or a text
    fix: str = ""  # what to set instead, in whole sentences

    # Whether the option has no effect in one composition, see Unused.
    unused: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.got, str):
            object.__setattr__(self, "got", format_value(self.got))

    def at(self, path: str) -> Self:
        """Returns the fault with `path` before its own path."""
        return replace(self, path=f"{path}.{self.path}".strip("."))

    def under(self, place: object) -> Self:
        """Returns the fault with the name of the config's file or run before its path."""
        return replace(self, path=f"{place}: {self.path}".removesuffix(": "))

    def with_fix(self, more: str) -> Self:
        """Returns the fault with one more sentence, or a note such as [job 3], after its fix."""
        return replace(self, fix=f"{self.fix} {more}".strip())

    def __str__(self) -> str:
        of = f"{self.path}: " if self.path else ""
        got = f"; got {self.got}" if self.got else ""
        fix = f" {self.fix}" if self.fix else ""
        end = "" if self.rule.endswith(".") and not got else "."
        return f"{of}{self.rule}{got}{end}{fix}"


@dataclass(frozen=True)
class Unused(Fault):
    """An option that has no effect in one composition of its component.

    It is a fault of the config only if the option has no effect in any of the sublayers that take
    it from the same place of the config.
    """

    unused = True


Faults = Iterator[Fault]  # what a check yields


class ConfigError(ValueError):
    """A config, a command or a file that cannot be used, with all its faults."""

    def __init__(self, faults: Fault | Iterable[Fault]):
        self.faults = (faults,) if isinstance(faults, Fault) else tuple(faults)
        if not all(isinstance(fault, Fault) for fault in self.faults):
            raise TypeError("ConfigError takes faults: Fault(path, rule, got, fix).")
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "\n".join(self.messages)

    @property
    def messages(self) -> tuple[str, ...]:
        """Returns each fault as a sentence that starts with its config path."""
        return tuple(printable(str(fault)) for fault in self.faults)


def config_error(path: object, rule: str, got: Any = "", fix: str = "") -> ConfigError:
    """Returns a ConfigError with one fault of a config or a file."""
    return ConfigError(Fault(f"{path}", rule, got, fix))
