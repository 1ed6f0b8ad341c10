"""Experiments and studies that a command line gives as files: experiment=mine/wide.yaml."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Glob, Override
from omegaconf import OmegaConf

from xformer_kit.registry import Fault

FILE_GROUPS = ("experiment", "study")
ENDINGS = (".yaml", ".yml")

_stored: set[tuple[str, str]] = set()  # (group, name) of the files of the previous line


def store_files(overrides: Iterable[Override]) -> dict[str, Fault]:
    """Stores each file of the line as the choice that the line names, of the package _global_.
    Returns {group: fault} of those that cannot be read.

    A study's file has the key `study`; both kinds may have a list of defaults, as files of conf.
    Those of the previous line are removed.
    """
    faults: dict[str, Fault] = {}
    repo = ConfigStore.instance().repo
    while _stored:
        group, name = _stored.pop()
        folder = repo
        for part in group.split("/"):
            folder = folder[part]
        del folder[name]
    for override in overrides:
        for path in config_files(override):
            node = _read(override.key_or_group, path)
            if isinstance(node, Fault):
                faults[override.key_or_group] = node
                break
            *parents, name = PurePosixPath(path).parts
            group = "/".join([override.key_or_group, *(part for part in parents if part != "/")])
            name = f"{name.removesuffix('.yml').removesuffix('.yaml')}.yaml"
            ConfigStore.instance().store(group=group, name=name, node=node, package="_global_")
            _stored.add((group, name))
    return faults


def config_files(override: Override) -> list[str]:
    """Returns the files that an override names as its choices."""
    is_pattern = isinstance(override.value(), Glob)
    if override.key_or_group not in FILE_GROUPS or override.is_delete() or is_pattern:
        return []
    if override.is_sweep_override():
        values: list[Any] = [text.strip("'\"") for text in override.sweep_string_iterator()]
    else:
        values = [override.value()]
    each = [name for value in values for name in (value if isinstance(value, list) else [value])]
    return [name for name in each if isinstance(name, str) and name.endswith(ENDINGS)]


def _read(group: str, path: str) -> Any:
    """Returns the content of a file, or its fault."""
    if path.endswith(".yml"):
        return Fault(group, "the name of a file must end in .yaml", got=path)
    try:
        text = Path(path).read_text(encoding="utf-8")
        plain = yaml.safe_load(text)
    except OSError:
        fix = "A path is relative to the current directory."
        return Fault(group, "there is no such file", got=path, fix=fix)
    except UnicodeDecodeError:
        return Fault(path, "must be utf-8 text", fix="Save it as utf-8.")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}, line {mark.line + 1}" if mark else path
        return Fault(place, f"is no YAML: {error.problem or error.context}", fix="Mend that line.")
    if not isinstance(plain, dict):
        return Fault(path, "must be a mapping of config keys", fix="Try attn: {heads: 8}.")
    if group == "study" and "study" not in plain:
        return Fault(path, "has no key study", fix="Put question, factors and the others under it.")
    return OmegaConf.create(text)
