"""Faults: what is wrong with a config, as values that are formatted once."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from xformer_kit.registry.printable import printable


def shown(value: Any) -> str:
    """A value in a sentence, as YAML writes it: null, true, 'a text', [1, 2], {a: 1}."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {shown(v)}" for key, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value)


@dataclass(frozen=True)
class Fault:
    """A rule that a value of a config, an option of a command or a file breaks.

    As text: "{path}: {rule}; got {got}. {fix}"
    """

    # Config path of the value, or the option, or the file. A component gives the path inside its
    # own node, "" for the component itself; the registry and the plan complete it with `at`.
    path: str
    rule: str  # what must hold, or why the value has no use, without a full stop
    got: Any = ""  # the value, which is kept as `shown` writes it, or a text
    fix: str = ""  # what to set instead, in whole sentences

    # Whether it is an option without effect in one composition, see Unused.
    unused: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.got, str):
            object.__setattr__(self, "got", shown(self.got))

    def at(self, path: str) -> Self:
        """The same fault of a component at a config path."""
        return replace(self, path=f"{path}.{self.path}".strip("."))

    def under(self, place: object) -> Self:
        """The same fault of a config in a file or a run, whose name comes before its path."""
        return replace(self, path=f"{place}: {self.path}".removesuffix(": "))

    def with_fix(self, more: str) -> Self:
        """The same fault with one more sentence, or with a note such as [job 3]."""
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


Faults = Iterator[Fault]


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
        """Each fault as a sentence that starts with its config path."""
        return tuple(printable(str(fault)) for fault in self.faults)


def config_error(path: object, rule: str, got: Any = "", fix: str = "") -> ConfigError:
    """The error of a config, or of a file, with one fault."""
    return ConfigError(Fault(f"{path}", rule, got, fix))
