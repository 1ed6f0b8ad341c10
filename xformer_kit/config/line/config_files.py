"""Experiments, presets and studies that a line gives as files: experiment=mine/wide.yaml."""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Glob, Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from xformer_kit.config.options.groups import GROUPS
from xformer_kit.config.saved.difference import flat
from xformer_kit.files.saved_files import is_special, readable
from xformer_kit.registry import Fault
from xformer_kit.registry.messages import one_line
from xformer_kit.text.command_lines import override_text, unescaped, value
from xformer_kit.text.user_path import user_path

FILE_GROUPS = ("experiment", "preset", "study")
OTHER_GROUPS = ("model", "trainer", "task_defaults", "debug")  # of the default run, with GROUPS
ENDINGS = (".yaml", ".yml")

_stored: set[tuple[str, str]] = set()  # (group, name) of the files of the previous line


def store_files(overrides: Iterable[Override], config_dir: str | None = None) -> dict[str, Fault]:
    """Stores each file of the line as the choice that the line names, of the package _global_.
    Returns {group: fault} of those that cannot be read, and of the choices in `config_dir`.

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
    overrides = list(overrides)
    for override in overrides:
        for path in config_files(override):
            node = _read(override.key_or_group, path)
            if isinstance(node, Fault):
                faults[override.key_or_group] = node
                break
            *parents, name = PurePosixPath(path).parts
            group = "/".join([override.key_or_group, *(part for part in parents if part != "/")])
            name = f"{name.removesuffix('.yml').removesuffix('.yaml')}.yaml"
            node = _with_choices(node, {o.key_or_group for o in overrides})
            ConfigStore.instance().store(group=group, name=name, node=node, package="_global_")
            _stored.add((group, name))
        if fault := _chosen_fault(override, config_dir):
            faults[override.key_or_group] = fault
    return faults


def _with_choices(node: DictConfig, on_line: Collection[str]) -> DictConfig:
    """Returns the content of a file in which a component that it names with its options, `attn:
    {name: latent, ...}`, is chosen by its list of defaults. on_line: the line's keys; a component
    that it chooses replaces the file's as a whole.
    """
    plain: Any = OmegaConf.to_container(node, resolve=False)
    chosen = []
    for group in GROUPS:
        options = plain.get(group)
        names = isinstance(options, dict) and isinstance(options.get("name"), str)
        if names and group not in on_line:
            chosen.append({f"override /{group}": options.pop("name")})
    if chosen:
        plain["defaults"] = [*as_list(plain.get("defaults")), *chosen]
    return OmegaConf.create(plain)


def _chosen_fault(override: Override, config_dir: str | None) -> Fault | None:
    """Returns the fault of a file of `config_dir` that an override chooses."""
    group = override.key_or_group
    for name in _names(override) if config_dir else ():
        path = Path(str(config_dir), group, f"{name}.yaml")
        if path.is_file() and not name.endswith(ENDINGS):
            if isinstance(node := _read(group, str(path)), Fault):
                return node
            # Hydra finds it before all other comments only.
            has_package = re.match(r"\s*#\s*@package\s", path.read_text("utf-8"))
            if node.keys() - {"defaults"} and not has_package:
                rule = "does not begin with `# @package _global_`, so that its keys would be under"
                fix = "Write it as the first line of the file."
                return Fault(str(path), f"{rule} {group}", fix=fix)
    return None


def own_keys(overrides: Iterable[Override], config_dir: str | None) -> set[str]:
    """Returns the config paths that the user's own files set: those of the line, and those of
    `config_dir`. Files that cannot be read have faults of their own.
    """
    contents = (plain for _, plain in _own_files(overrides, config_dir))
    return {path for plain in contents for path, _ in flat(plain)}


def brought_components(overrides: Iterable[Override], config_dir: str | None) -> list[str]:
    """Returns `components=[FILE,...]` with the component files that the user's own files name, each
    relative to the file that names it; none if no file does, or the line names its own.
    """
    overrides = list(overrides)
    if any(o.key_or_group == "components" for o in overrides):
        return []
    found = dict.fromkeys(
        str(file.parent / user_path(name)) if isinstance(name, str) else str(name)
        for file, plain in _own_files(overrides, config_dir)
        if isinstance(plain, dict)
        for name in as_list(plain.get("components"))
    )
    return [f"components={override_text([*found])}"] if found else []


def as_list(components: Any) -> list[Any]:
    """Returns `components` as a list: a single file may be written without brackets."""
    return components if isinstance(components, list) else [components] if components else []


def _own_files(overrides: Iterable[Override], config_dir: str | None) -> Iterator[tuple[Path, Any]]:
    """Yields (file, content) of the user's own files that the line chooses."""
    chosen = [(o.key_or_group, name) for o in overrides for name in _names(o)]
    for group, name in dict.fromkeys(chosen):
        if name.endswith(ENDINGS) or config_dir:
            is_file = name.endswith(ENDINGS)
            file = Path(name) if is_file else Path(str(config_dir), group, f"{name}.yaml")
            with suppress(OSError, ValueError, yaml.YAMLError):
                yield file, yaml.safe_load(readable(file).read_text(encoding="utf-8"))


def config_files(override: Override) -> list[str]:
    """Returns the files that an override names as its choices."""
    return [name for name in _names(override) if name.endswith(ENDINGS)]


def _names(override: Override) -> list[str]:
    """Returns the choices of an experiment or a study that an override names."""
    is_pattern = isinstance(override.value(), Glob)
    if override.key_or_group not in FILE_GROUPS or override.is_delete() or is_pattern:
        return []
    names = (name for value in values_of(override) for name in as_list(value))
    return [name for name in names if isinstance(name, str)]


def values_of(override: Override) -> list[Any]:
    """Returns the values of an override: one, or each of a sweep."""
    if not override.is_sweep_override():
        return [literal(override.value())]
    texts = (text.strip("'\"") for text in override.sweep_string_iterator())
    values = zip(override.sweep_iterator(), texts, strict=True)
    return [value if isinstance(value, list) else text for value, text in values]


def literal(value: Any) -> Any:
    """Returns a text, or a list of texts, with ${ for \\${."""
    if isinstance(value, list):
        return list(map(literal, value))
    return unescaped(value) if isinstance(value, str) else value


def _read(group: str, path: str) -> Any:
    """Returns the content of a file, or its fault."""
    if path.endswith(".yml"):
        return Fault(group, "the name of a file must end in .yaml", got=path)
    if is_special(path):
        return Fault(group, "must be a regular file", got=path, fix="Save its text in a file.")
    try:
        text = Path(path).read_text(encoding="utf-8")
        plain = yaml.safe_load(text)
        node = OmegaConf.create(text) if isinstance(plain, dict) else None
    except OSError:
        fix = "A path is relative to the current directory."
        return Fault(group, "there is no such file", got=path, fix=fix)
    except yaml.MarkedYAMLError as error:
        return yaml_fault(error, path)
    except RecursionError:
        rule = "is nested too deeply, or has an anchor (&) with an alias (*) of itself"
        return Fault(path, rule, fix="Write the value out.")
    except (ValueError, OmegaConfBaseException) as error:  # no utf-8, a key that is no text, ...
        return Fault(path, f"cannot be read: {one_line(error)}", fix="Mend it.")
    if not isinstance(plain, dict):
        return Fault(path, "must be a mapping of config keys", fix="Try attn: {heads: 8}.")
    if group == "study" and "study" not in plain:
        return Fault(path, "has no key study", fix="Put question, factors and the others under it.")
    if group == "experiment" and isinstance(plain.get("study"), dict):
        return Fault(path, "is a study, and no experiment", fix=f"Try study={value(path)}.")
    faults = filter(None, (named_code(key) for key, _ in flat(plain)))
    code = (fault.under(path) for fault in faults)
    return next(code, None) or _fault_of_defaults(group, path, plain.get("defaults")) or node


def yaml_fault(error: yaml.MarkedYAMLError, path: str = "") -> Fault:
    """Returns the fault of a file that is no YAML, with its line; path: its name, if the error does
    not have it.
    """
    mark = error.problem_mark or error.context_mark
    place = f"{path or mark.name}, line {mark.line + 1}" if mark else path or "config"
    fix = "Mend that line, or the one above it."
    return Fault(place, f"is no YAML: {error.problem or error.context}", fix=fix)


def named_code(key: str) -> Fault | None:
    """Returns the fault of a key of Hydra's own node that names code to run; None for others."""
    if not re.match(r"hydra\.(callbacks|job_logging|hydra_logging)\b|hydra\..*\b_target_\b", key):
        return None
    rule = "names code that Hydra would run, and a config is data"
    return Fault(key, rule, fix="Leave it out. Components of your own are given by components=.")


def _fault_of_defaults(kind: str, path: str, defaults: Any) -> Fault | None:
    """Returns the fault of the list of defaults of a file, an experiment or a study by `kind`. Its
    entries replace choices of the default run: `override /attn: linear`, in a study also
    `override /experiment: copy`. An experiment is the base of another as `/experiment/copy`.
    """
    entries = [entry for entry in as_list(defaults) if isinstance(entry, dict)]
    for key, name in ((str(key), name) for entry in entries for key, name in entry.items()):
        group = key.removeprefix("optional ").removeprefix("override ").removeprefix("/")
        got = f"{key}: {name}"
        if group == kind or (group, kind) == ("study", "experiment"):
            fix = f"Base the file on it with - /{group}/{name}."
            return Fault(path, f"defaults cannot choose the {group} again", got, fix)
        if group in (*GROUPS, *OTHER_GROUPS, *FILE_GROUPS) and "override /" not in key:
            rule = "an entry of defaults must override a choice of the default run"
            return Fault(path, rule, got, f"Write - override /{group}: {name}.")
    return None
