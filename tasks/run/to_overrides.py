"""The overrides of train.py that compose a given config."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

from tasks import Config, Facts
from tasks.run.faults import refuse
from xformer_kit.config import GROUPS
from xformer_kit.config.composition import compose_overrides
from xformer_kit.config.overrides import expand, parse
from xformer_kit.config.unused import ignored
from xformer_kit.plan import STACKS
from xformer_kit.registry import config_error
from xformer_kit.study.factor import text

# A task brings an experiment that suits it and its data, and that a model; a model brings a mask.
STAGES = ("task",), ("model", "data"), tuple(GROUPS)


def to_overrides(config: Facts) -> list[str]:
    """The task, model and components that differ from the defaults, then every value that differs
    from theirs; without values that the run does not read, which a command line may not set.

    Raises ConfigError if this version has no command line for the config, with the paths that would
    differ.
    """
    words: list[str] = []
    base = _composed(words)
    for groups in STAGES:
        chosen = {group: name for group, name in _choices(config).items() if group in groups}
        if more := [
            f"{group}={name}" for group, name in chosen.items() if name != _choices(base).get(group)
        ]:
            words += more
            base = _composed(words)
    words += _rest(base, config)
    unread = {fault.path for fault in ignored(config, list(map(_path, words)))}
    read = lambda words: [word for word in words if not _within(_path(word), unread)]
    words = read(words)
    if wrong := read(_rest(_composed(words), config)):
        raise config_error(
            "config",
            f"no command line of this version composes it; {', '.join(map(_path, wrong))} would"
            " differ",
            fix="Take the version that it was trained with; summary.json names it.",
        )
    return words


def _path(word: str) -> str:
    return word.lstrip("~").partition("=")[0]


def _within(path: str, paths: Iterable[str]) -> bool:
    return any(path == other or path.startswith(f"{other}.") for other in paths)


def _composed(words: list[str]) -> Config:
    """What overrides compose, whether or not it can be run. Raises ConfigError where they compose
    nothing.
    """
    session, overrides, faults = parse(expand(words), None)
    config, more = compose_overrides(session, overrides)
    refuse(dict.fromkeys(faults + more))
    return config


def value(given: Any) -> str:
    """A value as Hydra's grammar reads it; a text that would be read as a number stands in
    quotes.
    """
    if isinstance(given, Mapping):
        return "{" + ",".join(f"{key}:{value(item)}" for key, item in given.items()) + "}"
    if isinstance(given, (list, tuple)):
        return "[" + ",".join(map(value, given)) + "]"
    plain = text(given)
    return plain if _read_as(plain, given) else QuotedString(str(given), Quote.single).with_quotes()


def _read_as(plain: str, given: Any) -> bool:
    try:
        return _same(OverridesParser.create().parse_override(f"x={plain}").value(), given)
    except HydraException:
        return False


def _choices(config: Facts) -> dict[str, str]:
    """Group -> choice."""
    model = "_".join(stack for stack in STACKS if stack in config.get("model", {}))
    components = {
        group: config[group].get("name")
        for group in GROUPS
        if isinstance(config.get(group), Mapping)
    }
    return {"model": model, **components}


def _rest(base: Facts, config: Facts, path: str = "") -> Iterator[str]:
    """Overrides that take `base` to `config`, value by value."""
    for key, item in config.items():
        here = f"{path}{key}"
        if key in base and isinstance(item, Mapping) and isinstance(base[key], Mapping):
            yield from _rest(base[key], item, f"{here}.")
        elif key not in base or not _same(base[key], item):
            yield f"{here}={value(item)}"
    yield from (f"~{path}{key}" for key in base if key not in config)


def _same(one: Any, other: Any) -> bool:
    """Equal, and 1 is not 1.0: they are other configs to the hash."""
    plain = [json.dumps(x, sort_keys=True, default=str) for x in (one, other)]
    return plain[0] == plain[1]
