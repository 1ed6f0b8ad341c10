"""The overrides of train.py that compose a given config."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from xformer_kit.config.faults.unused_options import unused_overrides
from xformer_kit.config.line.composition import compose_overrides
from xformer_kit.config.line.overrides import parse
from xformer_kit.config.options.groups import GROUPS
from xformer_kit.config.saved.config_file import read_config
from xformer_kit.config.saved.difference import differing, flat
from xformer_kit.plan import KINDS, STACKS
from xformer_kit.registry import ConfigError, config_error, registry_version
from xformer_kit.text.command_lines import for_shell, override_text

Facts = Mapping[str, Any]  # a config
ARCHITECTURE = ("model", *KINDS, "extra")  # nodes of the config
# Options of these nodes that change no shape of a weight.
NOT_OF_SHAPES = {
    *("model.freeze", "model.unfreeze_at", "model.checkpoint_activations"),
    *("model.seed", "model.dropout", "attn.dropout"),
}
# Config groups in the order in which their choices change the defaults of other groups: a task
# selects its defaults, with data and a model; a model selects a mask.
GROUP_ORDER = ("task",), ("model", "data"), tuple(GROUPS)


def to_overrides(config: Facts) -> list[str]:
    """Returns the group choices that differ from the defaults, then the values that differ from
    those of the choices, without values that the run does not use: a command line may not set them.

    Raises ConfigError if no command line of this version composes the config, with the paths that
    would differ.
    """
    overrides: list[str] = []
    base = _compose(overrides)
    for groups in GROUP_ORDER:
        defaults = choices_of(base)
        if changed := [
            f"{group}={name}"
            for group, name in choices_of(config).items()
            if group in groups and name != defaults.get(group)
        ]:
            overrides += changed
            base = _compose(overrides)
    overrides += _difference(base, config)
    unused = {fault.path for fault in unused_overrides(config, list(map(_path, overrides)))}
    overrides = _without(overrides, unused)
    # Of options that exclude each other, one that is set replaces the default of the other.
    overrides += _without(_difference(_compose(overrides), config), unused)
    if different := _without(_difference(_compose(overrides), config), unused):
        raise config_error(
            "config",
            f"no command line of this version composes it; {', '.join(map(_path, different))} would"
            " differ",
            fix="Take the version that it was trained with; summary.json names it.",
        )
    return overrides


def changed_paths(words: Sequence[str], config: Facts, config_dir: str | None) -> list[str]:
    """Returns the config paths in which the config that overrides compose differs from another.
    Raises ConfigError if they compose none.
    """
    return differing([dict(flat(each)) for each in (_compose(words, config_dir), config)])


def to_same_architecture(config: Facts, run: str) -> str:
    """Returns what to change in the command line of a config for the architecture of a run: "set
    model.dim=32 and leave out attn.heads=8"; "" if it is the same, or no command line of this
    version composes it.
    """
    try:
        own, others = (
            [
                word
                for word in to_overrides(each)
                if _path(word).partition(".")[0] in ARCHITECTURE
                and _path(word) not in NOT_OF_SHAPES
            ]
            for each in (config, read_config(run))
        )
    except ConfigError:
        return ""
    added = [word for word in others if word not in own]
    paths = set(map(_path, others))
    left_out = [word for word in own if word not in others and _path(word) not in paths]
    parts = [
        f"{verb} {' '.join(map(for_shell, words))}"
        for verb, words in (("set", added), ("leave out", left_out))
        if words
    ]
    return " and ".join(parts)


def _path(override: str) -> str:
    return override.lstrip("~+").partition("=")[0]


def _without(overrides: Iterable[str], paths: set[str]) -> list[str]:
    """The overrides of other paths than these and the paths below them."""
    below = tuple(f"{path}." for path in paths)
    return [o for o in overrides if not f"{_path(o)}.".startswith(below)]


def _compose(overrides: Sequence[str], config_dir: str | None = None) -> dict[str, Any]:
    """Returns the config that overrides compose, whether or not it can be run. Raises ConfigError
    if they compose none.
    """
    return _composed(tuple(overrides), config_dir, registry_version())


@lru_cache(maxsize=16)  # the choices of the runs of a study are often the same
def _composed(overrides: tuple[str, ...], config_dir: str | None, version: int) -> dict[str, Any]:
    session, parsed, faults = parse(overrides, config_dir)
    if faults:
        raise ConfigError(dict.fromkeys(faults))
    return compose_overrides(session, parsed)[0]  # which no caller changes


def choices_of(config: Facts) -> dict[str, str]:
    """Config group -> the name that the config selects in it."""
    model = "_".join(stack for stack in STACKS if stack in config.get("model", {}))
    components = {
        group: config[group].get("name")
        for group in GROUPS
        if isinstance(config.get(group), Mapping)
    }
    if (logger := config.get("logger")) and "name" not in logger:
        components["logger"] = override_text([*logger])
    return {"model": model, **components}


def _difference(base: Facts, config: Facts, prefix: str = "") -> Iterator[str]:
    """Yields the overrides that change `base` to `config`, one per value."""
    for key, item in config.items():
        path = f"{prefix}{key}"
        if key in base and isinstance(item, Mapping) and isinstance(base[key], Mapping):
            yield from _difference(base[key], item, f"{path}.")
        elif key not in base or not _equal(base[key], item):
            yield f"{path}={override_text(item)}"
    yield from (f"~{prefix}{key}" for key in base if key not in config)


def _equal(a: Any, b: Any) -> bool:
    """Whether two values have the same JSON. 1 and 1.0 differ, as in the hash of a config."""
    return len({json.dumps(x, sort_keys=True, default=str) for x in (a, b)}) == 1
