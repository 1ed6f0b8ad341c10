"""Hydra's errors of composition that a user can cause, as faults.

Hydra has no classes for most of them: their messages are shown.
"""

from collections.abc import Iterable

import yaml
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from xformer_kit.config.line.config_files import yaml_fault
from xformer_kit.config.line.unknown_choices import unknown_component
from xformer_kit.config.options.groups import GROUPS, MAPPING_GROUPS
from xformer_kit.registry import Fault
from xformer_kit.registry.messages import first_line

COMPOSITION_ERRORS = (
    yaml.MarkedYAMLError,
    RecursionError,
    HydraException,
    OmegaConfBaseException,
    ValueError,  # also UnicodeDecodeError
    TypeError,
)


def composition_fault(error: Exception, overrides: Iterable[Override]) -> Fault:
    """Returns the fault of one of COMPOSITION_ERRORS: with the path that the error has, or the
    longest key of the line that its message names.
    """
    if isinstance(error, yaml.MarkedYAMLError):
        return yaml_fault(error)
    if isinstance(error, RecursionError):
        rule = "the lists of defaults of the chosen files contain each other"
        return Fault("config", rule, fix="Take one of them out.")
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        if group in GROUPS:  # of a file's list of defaults
            return unknown_component(group, name)
    message = first_line(str(error)).rstrip(".")
    named = [o.key_or_group for o in overrides if o.key_or_group in message]
    path = getattr(error, "full_key", None) or max(named, key=len, default="config")
    fix = "Change it, or leave it out."
    if isinstance(error, InterpolationResolutionError):
        fix = r"Name another key, or write \${ for a ${ that stays."
    elif path in MAPPING_GROUPS:  # a list cannot be merged into a mapping
        fix = f"Try {path}.NAME={{}}."
    return Fault(path, f"cannot be composed: {message}", fix=fix)
