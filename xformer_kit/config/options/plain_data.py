"""Configs as plain data: texts, numbers, None, lists and mappings."""

import re
import sys
from collections.abc import Mapping
from numbers import Real
from typing import Any

from xformer_kit.registry import ConfigError, Fault, Faults, config_error
from xformer_kit.registry.messages import first_line

KEY = re.compile(r"[A-Za-z_][\w./]*")  # at the top of a config; a key with dots is a path


def plain(config: Any) -> Any:
    """Returns a config as nested dicts and lists, with the interpolations of OmegaConf resolved.
    Raises ConfigError with all values that are no plain data.
    """
    if faults := list(_faults(found := _converted(config), "")):
        raise ConfigError(faults)
    return found


def _converted(value: Any) -> Any:
    omegaconf = sys.modules.get("omegaconf")  # without it there is no DictConfig
    if omegaconf is not None and omegaconf.OmegaConf.is_config(value):
        try:
            return omegaconf.OmegaConf.to_container(value, resolve=True)
        except omegaconf.errors.OmegaConfBaseException as error:
            path = getattr(error, "full_key", None) or "config"
            raise config_error(path, f"cannot be resolved: {first_line(str(error))}") from None
    if isinstance(value, Mapping):
        return {key: _converted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_converted(item) for item in value]
    return value


def _faults(value: Any, path: str) -> Faults:
    if isinstance(value, dict):
        for key, item in value.items():
            at = f"{path}.{key}".lstrip(".")
            if not isinstance(key, str) or not (path or KEY.fullmatch(key)):
                yield Fault(at, "the keys of a config are names", got=f"{key!r}")
            else:
                yield from _faults(item, at)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _faults(item, f"{path}[{i}]")
    elif value is not None and not isinstance(value, (str, Real)):
        rule = "must be plain data: a number, a text, None, a list or a mapping"
        kind = type(value)
        yield Fault(path, rule, got=f"{kind.__module__}.{kind.__qualname__}")
