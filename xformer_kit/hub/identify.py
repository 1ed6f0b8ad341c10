"""The composition of a published model: from its config.json to the overrides of a line."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from xformer_kit.hub.family import IGNORED, Family, family_of
from xformer_kit.hub.keys import Entry
from xformer_kit.plan import STACKS, layer_order
from xformer_kit.registry import ConfigError, Fault, format_value
from xformer_kit.text.command_lines import override_text

# What reading a value of a wrong type, or a number out of its range, may raise.
UNREADABLE = (
    *(TypeError, ValueError, AttributeError, LookupError, ArithmeticError),
    StopIteration,  # of no layers
)
# Keys with one item for each layer, in the families that read them.
PER_LAYER = ("layer_types", "no_rope_layers")


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
        except UNREADABLE:
            faults.append(_unreadable(entry, config))
    faults += _lengths(family, config, overrides.get("model.layers")) if not faults else ()
    if faults:
        raise ConfigError(fault.under("config.json") for fault in dict.fromkeys(faults))
    vocab_size = overrides.pop("model.vocab_size")
    source_vocab_size = overrides.pop("model.source_vocab_size", None)
    return Identified(family, overrides, vocab_size, source_vocab_size)


def preset_words(found: Identified, preset: Mapping[str, Any], seq_len: int) -> list[str]:
    """Returns the overrides of a line that compose it, choices of components first, with texts of
    `seq_len` tokens, or as long as its positions. preset: the model of the family's preset.
    """
    overrides = found.overrides | _whole_patterns(found, preset)
    choices = [path for path in overrides if "." not in path]
    paths = [*choices, *(path for path in overrides if "." in path)]
    words = (f"{path}={override_text(overrides[path])}" for path in paths)
    longest = overrides.get("model.max_len")
    is_short = isinstance(longest, int) and longest < seq_len
    shorter = [f"data.seq_len={longest}"] if is_short else []
    return [f"preset={found.family.preset}", *words, *shorter]


def _whole_patterns(found: Identified, preset: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the pattern of each stack with the kinds of layers that it lacks after its last
    layer: a small model need not have layers of all kinds that have options.
    """
    overrides, patterns = found.overrides, dict[str, Any]()
    for name in (name for name in STACKS if name in preset):
        of_preset = preset[name] or {}
        node = {
            key: overrides.get(f"model.{name}.{key}", of_preset.get(key))
            for key in ("first", "pattern", "last", "variants")
        }
        layers = overrides.get(f"model.{name}.layers", overrides.get("model.layers"))
        if not isinstance(layers, int) or layers < 1:
            continue
        own = (path.split(".") for path in overrides)
        kinds = {path[3] for path in own if path[:3] == ["model", name, "variants"] and path[3:]}
        order = layer_order(node, layers)
        if lacking := {"base", *kinds, *(node["variants"] or ())} - {*order}:
            patterns |= {f"model.{name}.{key}": None for key in ("first", "last") if node[key]}
            patterns[f"model.{name}.pattern"] = [*order, *sorted(lacking)]
    return patterns


def _unknown(family: Family, config: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields the fault of each key that the family's table does not have."""
    known = IGNORED.union(*(entry.keys for entry in family.keys))
    for key, value in config.items():
        if key not in known and value is not None:
            rule = "is a key whose meaning is not known here"
            yield Fault(key, rule, format_value(value), "Remove it if it has no effect.")


def _unreadable(entry: Entry, config: Mapping[str, Any]) -> Fault:
    """Returns the fault of the key that an entry cannot read: the first without which, or with the
    number 1, it can be read; all keys of the entry if there is none.
    """
    present = [key for key in dict.fromkeys((*entry.keys, *config)) if key in config]
    path, got = next(
        ((key, config[key]) for key in present if _is_cause(key, entry, config)),
        (", ".join(entry.keys), {key: config[key] for key in present if key in entry.keys}),
    )
    rule = "must have a type and a range that the model's class in transformers accepts"
    return Fault(path, rule, format_value(got), "Bring the file as it was published.")


def _is_cause(key: str, entry: Entry, config: Mapping[str, Any]) -> bool:
    """Whether an entry can be read without this key, or with the number 1 as its value."""
    others = {name: value for name, value in config.items() if name != key}
    for changed in (others, {**others, key: 1}):
        try:
            entry.read(changed)
        except ConfigError:  # without the value, another rule applies
            return True
        except UNREADABLE:
            continue
        return True
    return False


def _lengths(family: Family, config: Mapping[str, Any], layers: Any) -> Iterator[Fault]:
    """Yields the fault of each list whose length is not the number of layers."""
    known = {key for entry in family.keys for key in entry.keys}
    for key in PER_LAYER:
        items = config.get(key)
        if key in known and items and isinstance(layers, int) and len(items) != layers:
            rule = f"must have one item for each of the {layers} layers"
            yield Fault(key, rule, f"{len(items)}", "Bring the file as it was published.")
