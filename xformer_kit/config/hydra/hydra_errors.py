"""Hydra's errors of composition that a user can cause, as faults.

Hydra has no classes for them, so they are recognized by their messages.
"""

import re
from collections.abc import Callable

from xformer_kit.registry import Fault
from xformer_kit.text.command_lines import for_shell


def fault_of_message(message: str) -> Fault | None:
    """Returns the fault of an error with this message; None if it is no known one."""
    for pattern, to_fault in FAULTS.items():
        if found := re.search(pattern, message):
            return to_fault(*found.groups())
    return None


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
