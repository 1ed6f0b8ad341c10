"""The error of one fault."""

from xformer_kit.registry import ConfigError, Fault


def config_error(path: str, rule: str, got: str = "", fix: str = "") -> ConfigError:
    """The error of a config with one fault."""
    return ConfigError(Fault(path, rule, got, fix))
