"""The YAML text of a config, and the hash of the values that decide a run's result."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from xformer_kit.config.options.callbacks import only_observes
from xformer_kit.registry import Node

# A float of YAML 1.2, as on the command line: 1e-3 is one, which is a text in YAML 1.1.
FLOAT = (
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]+)"
        r"|[0-9][0-9_]*\.[0-9_]*|\.[0-9_]+|\.(?:inf|nan))$"
    ),
    list("-+0123456789."),
)
# Node -> options that are not hashed: paths, intervals and which checkpoints are kept, which do not
# change what is computed.
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
    "model": ("checkpoint_activations",),  # changes no number
    "checkpoints": ("keep_best", "metric", "mode", "keep_every", "asynchronous"),
    "trainer": (
        "val_every",
        "checkpoint_every",
        "rank_timeout",
        "log_every_n_steps",
        "enable_progress_bar",
        "enable_model_summary",
        "profile",
        "sample",
    ),
}


def config_hash(config: Node) -> str:
    """Returns the sha256 of the values that decide a run's result, 16 hex digits."""
    return hashlib.sha256(
        json.dumps(hashed_config(config), sort_keys=True, default=str).encode()
    ).hexdigest()[:16]


def hashed_config(config: Node) -> dict[str, Any]:
    """Returns the resolved config without logger, paths, workers, intervals, the choice of kept
    checkpoints, and callbacks that only observe.
    """
    kept = {key: value for key, value in config.items() if key not in NOT_HASHED[""]}
    for group, options in NOT_HASHED.items():
        if isinstance(kept.get(group), Mapping):
            kept[group] = {key: value for key, value in kept[group].items() if key not in options}
    if not kept.get("metrics"):  # as in configs without the key
        kept.pop("metrics", None)
    if not (kept.get("init_from") or {}).get("run"):
        kept.pop("init_from", None)  # configs of runs before this setting have the same hash
    if not (kept.get("lora") or {}).get("rank"):
        kept.pop("lora", None)
    if isinstance(model := kept.get("model"), Mapping):
        unset = [key for key in ("freeze", "unfreeze_at") if model.get(key) is None]
        kept["model"] = {key: value for key, value in model.items() if key not in unset}
    if isinstance(kept.get("callbacks"), Mapping):
        kept["callbacks"] = {
            name: node for name, node in kept["callbacks"].items() if not only_observes(name)
        }
        if kept["callbacks"] and isinstance(config.get("trainer"), Mapping):
            # A callback may end the run at a validation.
            kept["trainer"]["val_every"] = config["trainer"].get("val_every")
    return kept


class _Dumper(yaml.SafeDumper):
    """YAML dumper of which `read_config` reads the same values: texts such as 1e-3 are quoted, and
    those with a line break of Unicode are written with escapes.
    """

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = '"' if re.search("[\x85\u2028\u2029]", text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_implicit_resolver(*FLOAT)
_Dumper.add_representer(str, _Dumper.represent_text)


def config_yaml(config: Any) -> str:
    """Returns the config, or a part of it, as YAML, with its keys in their order."""
    config = dict(config) if isinstance(config, Mapping) else config
    return yaml.dump(config, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
