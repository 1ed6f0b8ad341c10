"""Which config is this? Its text, and the hash of what decides a run's result."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from xformer_kit.callbacks import watches
from xformer_kit.config.settings import SETTINGS
from xformer_kit.plan import TOWERS
from xformer_kit.registry import REQUIRED, ConfigError, plain

# Left out of the hash: where things are and how often they are looked at, not what is computed.
INCIDENTAL = {
    "": ("name", "logger", "resume", "parts"),
    "data": (
        *("path", "source", "target", "valid_path", "test_path"),
        *("valid_source", "valid_target", "test_source", "test_target"),  # the content has a fingerprint of its own
        *("cache", "num_workers"),
    ),
    "trainer": (
        "val_every",
        "checkpoint_every",
        "log_every_n_steps",
        "enable_progress_bar",
        "enable_model_summary",
        "profile",
    ),
}


def config_hash(config: Mapping[str, Any]) -> str:
    """sha256 of what decides a run's result, 16 hex digits."""
    return hashlib.sha256(json.dumps(decisive(config), sort_keys=True, default=str).encode()).hexdigest()[:16]


def decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved config without logger, paths, workers, cadences, and callbacks that only look."""
    kept = {key: value for key, value in config.items() if key not in INCIDENTAL[""]}
    for group, words in INCIDENTAL.items():
        if isinstance(kept.get(group), Mapping):
            kept[group] = {key: value for key, value in kept[group].items() if key not in words}
    if isinstance(kept.get("callbacks"), Mapping):
        kept["callbacks"] = {name: options for name, options in kept["callbacks"].items() if not watches(name)}
    return kept


def config_yaml(config: Mapping[str, Any]) -> str:
    """The config as YAML, in its own order."""
    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=120)


class _Loader(yaml.SafeLoader):
    """YAML 1.2's floats: 1e-3 is a number, as on the command line."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]+)|[0-9][0-9_]*\.[0-9_]*|\.[0-9_]+|\.(?:inf|nan))$"),
    list("-+0123456789."),
)


def read_config(run: str | Path) -> dict[str, Any]:
    """The saved config of a run's directory. Plain data: reading it runs no code. Raises ConfigError where there is none.

    A setting that came after the run was saved has its default, under which the run was trained.
    """
    path = Path(run) / "config.yaml"
    if not path.is_file():
        raise ConfigError(
            f"{run}: is no run; it has no config.yaml. Name a directory such as outputs/decoder/2026-11-20_12-00-00."
        )
    try:
        config = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: must hold a mapping; got {type(config).__name__}.")
    return _with_later_settings(config)


def _with_later_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Towers are no settings: what a config leaves out does not exist."""
    found = {key: plain(o.default) for key, o in SETTINGS.options("run").items() if o.default != REQUIRED} | config
    for group in ("model", "data"):
        if isinstance(found.get(group), Mapping):
            later = {k: plain(o.default) for k, o in SETTINGS.options(group).items() if o.default != REQUIRED}
            found[group] = {k: v for k, v in later.items() if k not in TOWERS} | found[group]
    return found
