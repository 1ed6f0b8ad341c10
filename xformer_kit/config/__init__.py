"""Composition of configs with Hydra, and validation of the whole config at once."""

import importlib

from xformer_kit.config.faults.check import check, checked_plan
from xformer_kit.config.options.groups import GROUPS, MAPPING_GROUPS, NESTED_GROUPS
from xformer_kit.config.options.user_components import import_components
from xformer_kit.config.saved.config_file import read_config
from xformer_kit.config.saved.identity import config_hash, config_yaml

__all__ = [
    "GROUPS",
    "MAPPING_GROUPS",
    "NESTED_GROUPS",
    "check",
    "checked_plan",
    "compose",
    "config_hash",
    "config_yaml",
    "import_components",
    "preflight",
    "read_config",
]
# Name -> its module: Hydra is imported only where a config is composed.
LAZY = {
    "compose": "line.composition",
    "conf_dir": "hydra.hydra_session",
    "preflight": "line.command_line",
}


def __getattr__(name: str):
    if module := LAZY.get(name):
        return getattr(importlib.import_module(f"xformer_kit.config.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
