"""Which key of a config.json is which option of ours, in both directions.

Every entry of a family's table has the keys that it is about, `read`, from a config.json to
overrides {config path: value}, and `write`, from the values of a composition to keys.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from xformer_kit.registry import config_error, format_value

REQUIRED = object()  # the default of a key that every file has
Values = Mapping[str, Any]


class Entry:
    """An entry of a table."""

    keys: tuple[str, ...]  # that it reads

    def read(self, config: Values) -> dict[str, Any]:
        """Returns the overrides that a config.json implies. Raises ConfigError for a value that
        cannot be composed.
        """
        return {}

    def write(self, values: Values) -> dict[str, Any]:
        """Returns the keys of a config.json for a composition, {config path: value}."""
        return {}


def same(value: Any) -> Any:
    """The value itself."""
    return value


@dataclass(frozen=True)
class Key(Entry):
    """A key that is one option.

    theirs: the key. ours: the config path. default: the value if a file does not have it, which is
    that of the class in transformers. to_ours, to_theirs: functions of a value that is not null.
    also: older names of the key.
    """

    theirs: str
    ours: str
    default: Any = REQUIRED
    to_ours: Callable[[Any], Any] = same
    to_theirs: Callable[[Any], Any] = same
    also: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.theirs, *self.also)

    def read(self, config):
        value = found(config, self.keys, self.default)
        if isinstance(self.default, bool) and value not in (True, False, None):
            raise refuse(self.theirs, value, "must be true or false")
        return {self.ours: None if value is None else self.to_ours(value)}

    def write(self, values):
        value = values.get(self.ours)
        return {self.theirs: None if value is None else self.to_theirs(value)}


@dataclass(frozen=True)
class NumberKey(Key):
    """A key that is one option, and a number: null, or a name such as sqrt_dim, is refused."""

    def read(self, config):
        return {self.ours: self.to_ours(_number(found(config, self.keys, self.default), self))}

    def write(self, values):
        return {self.theirs: self.to_theirs(_number(values.get(self.ours), self))}


@dataclass(frozen=True)
class Choice(Entry):
    """A key with a fixed number of values, each of which is one of ours.

    values: theirs -> ours. Of several for one of ours, the first is written.
    """

    theirs: str
    ours: str
    values: Mapping[Any, Any]
    default: Any = REQUIRED
    also: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.theirs, *self.also)

    def read(self, config):
        value = found(config, self.keys, self.default)
        if value not in [*self.values]:  # a list cannot be a key
            raise unsupported(self.theirs, value, self.values)
        return {self.ours: self.values[value]}

    def write(self, values):
        value = values.get(self.ours)
        if isinstance(value, Mapping):  # the node of a component, with all of its options
            value = value.get("name")
        return {self.theirs: next((one for one, own in self.values.items() if own == value), value)}


@dataclass(frozen=True)
class Fixed(Entry):
    """A key of which only some values can be composed, all the same.

    values: these; the first is the default, and is written.
    """

    theirs: str
    values: tuple[Any, ...]

    def __init__(self, theirs: str, *values: Any):
        object.__setattr__(self, "theirs", theirs)
        object.__setattr__(self, "values", values)

    @property
    def keys(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.theirs,)

    def read(self, config):
        value = config.get(self.theirs, self.values[0])
        if value not in self.values:
            raise unsupported(self.theirs, value, self.values)
        return {}

    def write(self, values):
        return {self.theirs: self.values[0]}


@dataclass(frozen=True)
class Functions(Entry):
    """Keys that are options together.

    reads: of a config.json. writes: of the values of a composition.
    """

    keys: tuple[str, ...]
    reads: Callable[[Values], dict[str, Any]]
    writes: Callable[[Values], dict[str, Any]] = field(default=lambda values: {})

    def read(self, config):
        return self.reads(config)

    def write(self, values):
        return self.writes(values)


def found(config: Values, keys: tuple[str, ...], default: Any) -> Any:
    """Returns the value of the first of these keys that a config.json has."""
    for key in keys:
        if key in config:
            return config[key]
    if default is REQUIRED:
        raise config_error(keys[0], "is missing in config.json", fix="Bring the whole file.")
    return default


def _number(value: Any, key: Key) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refuse(key.theirs, value, "must be a number")
    return value


def unsupported(key: str, value: Any, values: Any) -> Exception:
    """Returns the error of a value that cannot be composed, with the nearest that can."""
    known = [*values]
    near = difflib.get_close_matches(str(value), [str(one) for one in known], 1, 0.5)
    fix = f"The nearest that is: {near[0]}." if near and len(known) > 1 else ""
    listed = ", ".join(format_value(one) for one in known)
    return config_error(key, f"must be {'one of ' * (len(known) > 1)}{listed}", value, fix)


def refuse(key: str, value: Any, rule: str, fix: str = "") -> Exception:
    """Returns the error of a value that cannot be composed."""
    return config_error(key, rule, format_value(value), fix)
