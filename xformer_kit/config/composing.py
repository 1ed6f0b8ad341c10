"""Registries -> Hydra groups, and overrides -> what Hydra composes of them.

Composing takes Hydra a quarter of a second, most of it for the files and parts that are chosen, and
the lines of a study, a notebook or a session choose the same ones again and again. So what was
composed of choices is kept, and values are laid over a copy of it: by Hydra's own function, in the
order of the line, as it does itself behind the choices. What is not plain is left to Hydra as a
whole: interpolations, its own node, directories that files add, and whatever it finds fault with.
"""

import copy
import os
import re
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import (
    InterpolationResolutionError,
    KeyValidationError,
    OmegaConfBaseException,
)

from xformer_kit.config.check import GROUPS
from xformer_kit.registry import shown

KEPT = 64  # compositions
# entries of the directories with configs; in larger ones changes are not looked for, and nothing is
# kept
MOST = 2000
STARTS = (
    "hydra/launcher",
    "hydra.launcher.",
    "hydra/sweeper",
    "hydra.mode",
)  # of Hydra's own node, and changes nothing else
OURS = "main"  # Hydra's name for the directory of our own files
LIVE = re.compile(
    r"\$\{\s*(hydra\b|[\w.]+\s*:)"
)  # what may be another value each time: ${oc.env:HOME}, ${now:%H}, ${hydra.job.name}
File = tuple[
    str, int, int, int, int, int
]  # path, and what is another where the file is another or has changed
_stored: dict[
    tuple[str, str], tuple[str, ConfigNode]
] = {}  # group and name -> the node, written out (1 is not 1.0), and Hydra's


class Kept(NamedTuple):
    """What was composed of choices, valid as long as Hydra's nodes and files are those it was
    composed of.
    """

    nodes: list[ConfigNode]
    files: list[File]
    config: DictConfig


_kept: dict[tuple[Any, ...], Kept] = {}


class Repository(CachingConfigRepository):
    """Hydra's for one composition, with a list of sources of its own, which is what it may change.
    Hydra copies the sources as well, and with them every node of its store, which takes a quarter
    of the time.
    """

    def __init__(self, delegate: IConfigRepository):
        self.delegate = copy.copy(delegate)
        self.cache = {}


class Loader(ConfigLoaderImpl):
    """Hydra's, which remembers what it has read."""

    paths: set[str] = set()
    sources = 0  # directories, with those that files add

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        repository = Repository(self.repository)
        parsed = [_parsed(text) for text in overrides]
        self._process_config_searchpath(config_name, parsed, repository)
        return parsed, repository

    def _load_single_config(self, default: Any, repo: Any) -> Any:
        self.paths = self.paths | {default.config_path}
        return super()._load_single_config(default, repo)


class OnDemand(ConfigNode):
    """The defaults of a component of the zoo, which is imported when Hydra reads them."""

    def __init__(self, group: str, name: str):
        self.name = f"{name}.yaml"
        self.group = group
        self.package = None
        self.provider = "xformer_kit"

    @cached_property
    def node(self) -> DictConfig:  # type: ignore[override]
        name = self.name.removesuffix(".yaml")
        return OmegaConf.create(GROUPS[str(self.group)].defaults(name))


def store() -> None:
    """Make every registered part a choice of its Hydra group."""
    repository = ConfigStore.instance().repo
    for group, registry in GROUPS.items():
        for name in registry.zoo:
            repository.setdefault(group, {}).setdefault(f"{name}.yaml", OnDemand(group, name))
        for name in [name for name in registry if name not in registry.zoo]:
            node = registry.defaults(name)
            said, there = repr(node), repository.get(group, {}).get(f"{name}.yaml")
            if there is None or _stored.get((group, name), ("", None)) != (said, there):
                ConfigStore.instance().store(
                    group=group, name=name, node=node, provider="xformer_kit"
                )
                _stored[group, name] = said, repository[group][f"{name}.yaml"]
        for group_, name in [
            pair for pair in _stored if pair[0] == group and pair[1] not in registry
        ]:
            repository.get(group_, {}).pop(f"{name}.yaml", None)
            del _stored[group_, name]


def loaded(
    loader: Loader, texts: list[str], name: str | None, faults: list[str]
) -> DictConfig | None:
    """What Hydra composes of a command line, without its own node; None where it cannot, which
    becomes a fault.
    """
    config = None
    try:
        config = _from_kept(loader, texts, name or "train")
        if config is None:
            config = _whole(loader, texts, name or "train")
        OmegaConf.set_readonly(config, False)
        OmegaConf.set_struct(config, False)
        OmegaConf.resolve(config)
        return config
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{mark.name}, line {mark.line + 1}" if mark else "config"
        faults.append(
            f"{where}: is no YAML: {error.problem or error.context}. Mend that line, or the one"
            " above it."
        )
        return None
    except UnicodeDecodeError as error:
        told = (_no_text(path) for path, *_ in _files(loader) or ())
        faults.append(
            next(filter(None, told), f"config: must be utf-8 text: {error}.") + " Save it as utf-8."
        )
        return None
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        if (bad := _bad_key(error)) is not None:
            override = re.match(r"Error merging override \+*([\w.]+)=", str(error))
            place = str(
                bad.full_key
            )  # within the value that is laid over the config, or from its root
            if override and not f"{place}.".startswith(f"{override[1]}."):
                place = f"{override[1]}.{place}"
            faults.append(
                f"{place}: must have texts as keys; got {shown(bad.key)}. Put it in quotes."
            )
            return None
        what = " ".join(str(error).split("\n")[0].split()).rstrip(".")
        place, got = str(getattr(error, "full_key", None) or "config"), ""
        if isinstance(error, InterpolationResolutionError) and (found := _unresolved(config, "")):
            place, got = (
                found[0],
                "; got " + found[1] + r". Say another key, or write \${ for a ${ that stays",
            )
        faults.append(f"{place}: cannot be composed: {what}{got}.")
        return None


def _bad_key(error: BaseException | None) -> KeyValidationError | None:
    """The cause of an error of Hydra's, if that is a key such as null."""
    while error is not None and not (isinstance(error, KeyValidationError) and error.full_key):
        error = error.__cause__
    return error


def _no_text(path: str) -> str | None:
    """Where a file is no text, which Python says without its name."""
    data = Path(path).read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return f"{path}, line {line}: must be utf-8 text; got byte 0x{data[error.start]:02X}."
    return None


def _unresolved(node: Any, path: str) -> tuple[str, str] | None:
    """The config path of the first interpolation that leads nowhere, and its text."""
    keys: list[Any] = (
        list(node.keys() if isinstance(node, DictConfig) else range(len(node)))
        if node is not None
        else []
    )
    for key in keys:
        at = f"{path}[{key}]" if isinstance(node, ListConfig) else f"{path}.{key}".lstrip(".")
        raw = node._get_node(key)
        if (
            isinstance(raw, (DictConfig, ListConfig))
            and not raw._is_none()
            and not raw._is_interpolation()
        ):
            if found := _unresolved(raw, at):
                return found
        elif raw is not None and raw._is_interpolation():
            try:
                raw._dereference_node()
            except OmegaConfBaseException:
                return at, str(raw._value())
    return None


def _whole(loader: Loader, texts: list[str], name: str) -> DictConfig:
    config = loader.load_configuration(name, texts, run_mode=RunMode.RUN)
    readonly, loader.sources = (
        config._get_node_flag("readonly"),
        len(config.hydra.runtime.config_sources),
    )
    OmegaConf.set_readonly(config, False)
    OmegaConf.set_struct(config, False)
    config.pop("hydra")
    OmegaConf.set_struct(config, True)  # as it is where Hydra lays values over it
    OmegaConf.set_readonly(config, readonly)
    return config


def _from_kept(loader: Loader, texts: list[str], name: str) -> DictConfig | None:
    """By what is kept of the line's choices; None where Hydra is to compose the line as a whole, or
    to say what is wrong.
    """
    files = _files(loader)
    if files is None or any("${" in text for text in texts):
        return None
    try:
        overrides = [_parsed(text) for text in texts]
        if any(o.is_sweep_override() or _of_hydra(o) for o in overrides):
            return None
        chosen = [_chooses(loader, override) for override in overrides]
        kept = _of_choices(
            loader, [t for t, chooses in zip(texts, chosen, strict=True) if chooses], name, files
        )
        if kept is None:
            return None
        config = copy.deepcopy(kept.config)
        values = [
            override for override, chooses in zip(overrides, chosen, strict=True) if not chooses
        ]
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
        return config
    except (HydraException, OmegaConfBaseException, ValueError, yaml.YAMLError):
        return None


def _of_choices(loader: Loader, choices: list[str], name: str, files: list[File]) -> Kept | None:
    """What is kept of these choices, composed first where it is not there or not valid; None where
    it may not be kept.
    """
    sources = tuple((source.scheme(), source.path) for source in loader.repository.get_sources())
    key, nodes = (name, version.getbase(), sources, *choices), _nodes(ConfigStore.instance().repo)
    kept = _kept.get(key)
    # Nodes are compared by what they are: those that are kept live, so that no other has their
    # address.
    if (
        kept is not None
        and kept.files == files
        and list(map(id, kept.nodes)) == list(map(id, nodes))
    ):
        return kept
    loader.paths = set()
    config = _whole(loader, choices, name)
    if loader.sources != len(sources) or not all(_steady(loader, path) for path in loader.paths):
        return None
    while len(_kept) >= KEPT:
        _kept.pop(next(iter(_kept)), None)
    _kept[key] = kept = Kept(nodes, files, config)
    return kept


def _of_hydra(override: Override) -> bool:
    """Whether an override is about Hydra's own node in a way that may show in the rest."""
    key = override.key_or_group
    return (override.is_hydra_override() or key == "hydra") and not key.startswith(STARTS)


def _chooses(loader: Loader, override: Override) -> bool:
    """Whether Hydra takes an override for the choice of a group, as its defaults list does; or it
    is about Hydra's own node, which is not in what is kept.
    """
    return override.is_hydra_override() or (
        loader.repository.group_exists(override.key_or_group)
        and not isinstance(override.value(), dict)
    )


def _steady(loader: Loader, path: str) -> bool:
    """Whether a config that was read lies in a directory that is looked at, and says the same each
    time it is read.
    """
    if os.path.isabs(path) or os.path.normpath(path).startswith(".."):
        return False
    for source in loader.repository.get_sources():
        file = Path(source.path, path if path.endswith((".yaml", ".yml")) else f"{path}.yaml")
        if (
            source.scheme() == "file"
            and source.provider != OURS
            and file.is_file()
            and LIVE.search(file.read_text())
        ):
            return False
    return True


def _parsed(text: str) -> Override:
    """Of a text with a function in it, such as shuffle, anew each time."""
    return _once(text) if "(" not in text else OverridesParser.create().parse_overrides([text])[0]


@lru_cache(1024)
def _once(text: str) -> Override:
    return OverridesParser.create().parse_overrides([text])[0]


def _nodes(repository: dict[str, Any]) -> list[ConfigNode]:
    found: list[ConfigNode] = []
    for value in repository.values():
        found += _nodes(value) if isinstance(value, dict) else [value]
    return found


def _files(loader: Loader) -> list[File] | None:
    """The YAML files that Hydra may read, with what tells whether they changed; None where they are
    too many to look at, or cannot be looked at.
    """
    found: list[File] = []
    left = MOST
    for source in loader.repository.get_sources():
        waiting = [source.path] if source.scheme() == "file" and os.path.isdir(source.path) else []
        while waiting:
            try:
                entries = list(os.scandir(waiting.pop()))
                waiting += [entry.path for entry in entries if entry.is_dir()]
                found += [
                    _stamp(e) for e in entries if e.name.endswith((".yaml", ".yml")) and e.is_file()
                ]
            except OSError:
                return None
            if (left := left - len(entries)) < 0:
                return None
    return sorted(found)


def _stamp(entry: "os.DirEntry[str]") -> File:
    facts = entry.stat()
    return (
        entry.path,
        facts.st_mtime_ns,
        facts.st_ctime_ns,
        facts.st_size,
        facts.st_ino,
        facts.st_dev,
    )
