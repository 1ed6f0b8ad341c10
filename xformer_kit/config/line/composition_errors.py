"""Hydra's errors of composition that a user can cause, as faults.

Hydra has no classes for most of them, so they are recognized by their messages.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import (
    InterpolationResolutionError,
    KeyValidationError,
    OmegaConfBaseException,
)

from xformer_kit.config.line.unknown_choices import unknown_component
from xformer_kit.config.options.groups import GROUPS, MAPPING_GROUPS
from xformer_kit.registry import Fault
from xformer_kit.text.command_lines import for_shell

COMPOSITION_ERRORS = (
    yaml.MarkedYAMLError,
    RecursionError,
    HydraException,
    OmegaConfBaseException,
    ValueError,  # also UnicodeDecodeError
    TypeError,
)


def composition_fault(
    error: Exception,
    overrides: Sequence[Override],
    config: DictConfig | None,
    files: Iterable[Path],
) -> Fault:
    """Returns the fault of one of COMPOSITION_ERRORS. config: what was composed before the error,
    if anything; files: those that Hydra may have read.
    """
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        place = f"{mark.name}, line {mark.line + 1}" if mark else "config"
        rule = f"is no YAML: {error.problem or error.context}"
        return Fault(place, rule, fix="Mend that line, or the one above it.")
    if isinstance(error, UnicodeDecodeError):
        found = filter(None, map(_not_utf8, files))
        place, got = next(found, ("config", f"{error}"))
        return Fault(place, "must be utf-8 text", got, "Save it as utf-8.")
    if isinstance(error, RecursionError):
        rule = "the lists of defaults of the chosen files contain each other"
        return Fault("config", rule, fix="Take one of them out.")
    return (
        _unknown_component(error)
        or fault_of_message(str(error))
        or _fault_in_list(error, overrides)
        or _key_fault(error)
        or _other_fault(error, config)
    )


def fault_of_message(message: str) -> Fault | None:
    """Returns the fault of an error with this message; None if it is no known one."""
    for pattern, to_fault in FAULTS.items():
        if found := re.search(pattern, message):
            return to_fault(*found.groups())
    return None


def _unknown_component(error: Exception) -> Fault | None:
    """Returns the fault of a file that chooses an unknown component in its list of defaults."""
    if not isinstance(error, MissingConfigException) or not error.missing_cfg_file:
        return None
    group, _, name = error.missing_cfg_file.rpartition("/")
    return unknown_component(group, name) if group in GROUPS else None


def _fault_in_list(error: Exception, overrides: Iterable[Override]) -> Fault | None:
    """Returns the fault of an override of a key within a list, if that is the error."""
    if found := re.search(r"(?:invalid literal for int\(\).*|Index) '(\w+)'", str(error)):
        for override in overrides:
            parent, _, below = override.key_or_group.partition(f".{found[1]}")
            if below or parent != override.key_or_group:
                rule = f"{parent} is a list, which is set as a whole"
                return Fault(override.key_or_group, rule, fix=f"Try {parent}=[...].")
    return None


def _not_utf8(file: Path) -> tuple[str, str] | None:
    """Returns (line, byte) of the first place at which a file is not utf-8; Python's error has no
    file name.
    """
    data = file.read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return f"{file}, line {line}", f"byte 0x{data[error.start]:02X}"
    return None


def _key_fault(error: Exception) -> Fault | None:
    """Returns the fault of an invalid key such as null, if that is the cause of Hydra's error."""
    cause: BaseException | None = error
    while not (isinstance(cause, KeyValidationError) and cause.full_key):
        if cause is None:
            return None
        cause = cause.__cause__
    # The error's path starts in the value that is merged into the config, or at the root.
    place = str(cause.full_key)
    override = re.match(r"Error merging override \+*([\w.]+)=", str(error))
    if override and not f"{place}.".startswith(f"{override[1]}."):
        place = f"{override[1]}.{place}"
    return Fault(place, "must have texts as keys", cause.key, "Put it in quotes.")


def _other_fault(error: Exception, config: DictConfig | None) -> Fault:
    """Returns the fault of a config that Hydra cannot compose, with the place if it is known."""
    reason = " ".join(str(error).split("\n")[0].split()).rstrip(".")
    rule = f"cannot be composed: {reason}"
    if isinstance(error, InterpolationResolutionError) and config is not None:
        for place, text in _unresolved(config, ""):
            fix = r"Name another key, or write \${ for a ${ that stays."
            return Fault(place, rule, text, fix)
    # A list cannot be merged into a mapping, such as the extras.
    if found := re.match(r"Error merging override \+*([\w.]+)=(\[.*\])$", reason):
        key, value = found.groups()
        path = f"{key}.NAME" if key in MAPPING_GROUPS else key
        return Fault(key, "must be a mapping", value, f"Try {path}={{}}.")
    return Fault(getattr(error, "full_key", None) or "config", rule)


def _unresolved(node: DictConfig | ListConfig, path: str) -> Iterator[tuple[str, str]]:
    """Yields (config path, text) of each interpolation that cannot be resolved."""
    raw: Any = OmegaConf.to_container(node, resolve=False)
    is_list = isinstance(node, ListConfig)
    for key in range(len(raw)) if is_list else raw:
        at = f"{path}[{key}]" if is_list else f"{path}.{key}".lstrip(".")
        if OmegaConf.is_interpolation(node, key):
            try:
                node[key]
            except OmegaConfBaseException:
                yield at, str(raw[key])
        elif isinstance(raw[key], (dict, list)):
            yield from _unresolved(node[key], at)


def _no_key(key: str) -> Fault:
    return Fault(f"~{key}", "takes out a key that the config does not have", fix="Leave it out.")


def _other_value(key: str, value: str, given: str) -> Fault:
    rule = f"takes out the key if its value is {given}, which is {value}"
    return Fault(f"~{key}", rule, fix=f"Try ~{key}.")


def _no_choice(key: str) -> Fault:
    rule = "takes out a choice that the config does not have"
    return Fault(f"~{key}", rule, fix="Leave it out.")


def _no_config(name: str) -> Fault:
    choice = for_shell(f"experiment={name.removesuffix('.yaml')}")
    fix = f"Try {choice}, of a file in experiment/ of --config-dir, or the path of a file."
    return Fault("--config-name", "no config has this name", got=name, fix=fix)


def _no_plugin(kind: str, name: str) -> Fault:
    fix = "Install its package, or leave it out."
    if kind == "sweeper":
        fix = "Leave it out; study=search searches with Optuna."
    return Fault(f"hydra/{kind}", f"no {kind} called '{name}' is installed", fix=fix)


FAULTS: dict[str, Callable[..., Fault]] = {
    r"Could not delete from config\. '(.+)' does not exist": _no_key,
    r"Could not delete from config\. The value of '(.+)' is (.+) and not (.+)\.": _other_value,
    r"Could not delete '(.+)'\. No match in the defaults list": _no_choice,
    r"Cannot find primary config '(.+?)'": _no_config,
    r"Could not find 'hydra/(sweeper|launcher)/(.+?)'": _no_plugin,
}
