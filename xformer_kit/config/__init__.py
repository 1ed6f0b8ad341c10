"""What was asked for, and can it run? Composition with Hydra, and validation of the whole config at
once.
"""

from xformer_kit.config.check import GROUPS, INNER, MANY, check, ensure
from xformer_kit.config.identity import config_hash, config_yaml
from xformer_kit.config.parts import import_parts
from xformer_kit.config.saved import read_config

__all__ = [
    "GROUPS",
    "INNER",
    "MANY",
    "check",
    "compose",
    "config_hash",
    "config_yaml",
    "ensure",
    "import_parts",
    "preflight",
    "read_config",
]


def __getattr__(name: str):
    if name == "preflight":  # Hydra is imported only where a config is composed
        from xformer_kit.config.line import preflight

        return preflight
    if name in ("compose", "conf_dir", "from_hydra"):
        from xformer_kit.config import hydra

        return getattr(hydra, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
