"""The valid config of a run's directory, with the components that it names imported."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xformer_kit.config.faults.check import check
from xformer_kit.config.options.groups import GROUPS
from xformer_kit.config.options.user_components import import_components
from xformer_kit.config.saved.config_file import check_components, read_config
from xformer_kit.registry import ConfigError


def read_run(
    run: str | Path, components: Iterable[str] = (), override: str = "--components FILE"
) -> dict[str, Any]:
    """Returns the saved config of a run, after importing the user's components. Raises ConfigError
    with all faults of the config, each with its file and path.

    override: how the user names a file of components, for the message.
    """
    config = read_config(run)
    check_components(run, components, override)
    import_components(components, GROUPS.values())
    check_saved(run, config)
    return config


def check_saved(run: str | Path, config: Mapping[str, Any]) -> None:
    """Raises ConfigError with all faults of a config that was read from a run's directory."""
    place = Path(run) / "config.yaml"
    try:
        faults = check(config, data=False)
    except ConfigError as error:
        faults = [*error.faults]
    if faults:
        raise ConfigError(fault.under(place) for fault in faults)
