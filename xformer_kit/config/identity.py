"""Which config is this? Its text, and the hash of what decides a run's result."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import yaml

from xformer_kit.config.callbacks import only_observes
from xformer_kit.registry import Node

# Left out of the hash: where things are and how often they are looked at, not what is computed.
NOT_HASHED = {
    "": ("name", "logger", "resume", "components"),
    "data": (
        *("path", "source", "target", "valid_path", "test_path"),
        *(
            "valid_source",
            "valid_target",
            "test_source",
            "test_target",
        ),  # the content has a fingerprint of its own
        *("cache", "num_workers"),
    ),
    "trainer": (
        "val_every",
        "checkpoint_every",
        "rank_timeout",
        "log_every_n_steps",
        "enable_progress_bar",
        "enable_model_summary",
        "profile",
    ),
}


def config_hash(config: Node) -> str:
    """sha256 of what decides a run's result, 16 hex digits."""
    return hashlib.sha256(
        json.dumps(hashed_config(config), sort_keys=True, default=str).encode()
    ).hexdigest()[:16]


def hashed_config(config: Node) -> dict[str, Any]:
    """The resolved config without logger, paths, workers, cadences, and callbacks that only
    look.
    """
    kept = {key: value for key, value in config.items() if key not in NOT_HASHED[""]}
    for group, words in NOT_HASHED.items():
        if isinstance(kept.get(group), Mapping):
            kept[group] = {key: value for key, value in kept[group].items() if key not in words}
    if isinstance(kept.get("callbacks"), Mapping):
        kept["callbacks"] = {
            name: options for name, options in kept["callbacks"].items() if not only_observes(name)
        }
    return kept


def config_yaml(config: Node) -> str:
    """The config as YAML, in its own order."""
    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=120)
