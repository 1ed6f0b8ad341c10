"""The composition of a published model: from its config.json to the overrides of a line."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from xformer_kit.hub.family import IGNORED, Family, family_of
from xformer_kit.registry import ConfigError, Fault, format_value


class Identified(NamedTuple):
    """A composition: the preset, and {config path: value} over it. source_vocab_size: of the
    source's tokens, if it differs.
    """

    family: Family
    overrides: dict[str, Any]
    vocab_size: int
    source_vocab_size: int | None


def identify(config: Mapping[str, Any]) -> Identified:
    """Returns the composition of a config.json. Raises ConfigError with all keys that cannot be
    composed.
    """
    family = family_of(config)
    faults, overrides = list(_unknown(family, config)), dict[str, Any]()
    for entry in family.keys:
        try:
            overrides |= entry.read(config)
        except ConfigError as error:
            faults += error.faults
    if faults:
        raise ConfigError(fault.under("config.json") for fault in faults)
    vocab_size = overrides.pop("model.vocab_size")
    source_vocab_size = overrides.pop("model.source_vocab_size", None)
    return Identified(family, overrides, vocab_size, source_vocab_size)


def _unknown(family: Family, config: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields the fault of each key that the family's table does not have."""
    known = IGNORED.union(*(entry.keys for entry in family.keys))
    for key, value in config.items():
        if key not in known and value is not None:
            rule = "is a key whose meaning is not known here"
            yield Fault(key, rule, format_value(value), "Remove it if it has no effect.")
