"""The composition of a published model: from its config.json to the overrides of a line."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from xformer_kit.hub.family import IGNORED, Family, family_of
from xformer_kit.registry import ConfigError, Fault, format_value
from xformer_kit.text.command_lines import override_text


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


def preset_words(found: Identified, seq_len: int) -> list[str]:
    """Returns the overrides of a line that compose it, choices of components first, with texts of
    `seq_len` tokens, or as long as its positions.
    """
    overrides = found.overrides
    choices = [path for path in overrides if "." not in path]
    paths = [*choices, *(path for path in overrides if "." in path)]
    words = (f"{path}={override_text(overrides[path])}" for path in paths)
    longest = overrides.get("model.max_len") or seq_len
    shorter = [f"data.seq_len={longest}"] if longest < seq_len else []
    return [f"preset={found.family.preset}", *words, *shorter]


def _unknown(family: Family, config: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields the fault of each key that the family's table does not have."""
    known = IGNORED.union(*(entry.keys for entry in family.keys))
    for key, value in config.items():
        if key not in known and value is not None:
            rule = "is a key whose meaning is not known here"
            yield Fault(key, rule, format_value(value), "Remove it if it has no effect.")
