"""The config files and the registered components for Hydra, through its public interface.

Hydra composes a line in about 0.14 s of CPU time, nearly all of it for the choices (`norm=layer`).
The runs of a study or of a sweep, and the calls of a notebook, repeat the same choices with other
values. A session therefore keeps what Hydra composed from choices, and `compose_line` sets the
values on a copy.
"""

import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, cached_property, lru_cache
from pathlib import Path
from types import NoneType
from typing import Any

import hydra
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from xformer_kit.config.options.groups import GROUPS
from xformer_kit.config.options.logger_options import LOGGERS, composed_choice
from xformer_kit.config.options.settings import default_settings
from xformer_kit.objective import OBJECTIVES
from xformer_kit.registry import config_error, registry_version

VERSION_BASE = "1.3"  # of Hydra's behavior, here and in hydra.main
PRIMARY = "train"  # the config that a line starts from, unless --config-name names another
JOB_NAME = "hydra_app"  # hydra.job.name; hydra.main takes it from the module of its task function
MAX_CACHED = 64  # compositions of one session
TASK_DEFAULTS = "task_defaults"  # group of what a task changes in the default run
SWEEPS = "sweep"  # folder of conf/ with files for W&B, which Hydra does not compose

Configs = dict[tuple[str | None, str], dict[str, Any]]  # (group, name) -> content

_config_dir: ContextVar[str | None] = ContextVar("config_dir", default=None)
# What is in Hydra's ConfigStore, with its text: a config that has not changed is not made again.
_stored: "dict[tuple[str | None, str], tuple[str, StoredConfig]]" = {}
_previous: "tuple[Any, HydraSession] | None" = None  # the state of the last session, and it


def conf_dir() -> str:
    """Returns the absolute directory of YAML files: inside the installed package, or next to it in
    a checkout.
    """
    package = Path(__file__).resolve().parents[2]
    for place in (package / "conf", package.parent / "conf"):
        if (place / f"{PRIMARY}.yaml").is_file():
            return str(place)
    raise config_error(
        "conf", f"no train.yaml is in or next to {package}", fix="Install xformer_kit again."
    )


class ConfigDirPlugin(SearchPathPlugin):
    """Adds the directory of `--config-dir` at the place where hydra.main adds it."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if (directory := _config_dir.get()) is not None:
            search_path.append("command-line", directory)


@contextmanager
def initialized(config_dir: str | None = None) -> Iterator[ConfigLoader]:
    """Initializes Hydra with conf/ and `config_dir`, and restores what was initialized before: the
    sweeper of a study composes its runs while hydra.main is active.
    """
    Plugins.instance().register(ConfigDirPlugin)
    active = GlobalHydra.instance().hydra
    base = VersionBase.instance().version_base
    token = _config_dir.set(config_dir)
    GlobalHydra.instance().clear()
    try:
        job_name = JobRuntime.instance().get("name")
        with hydra.initialize_config_dir(conf_dir(), job_name, VERSION_BASE):
            yield GlobalHydra.instance().config_loader()
    finally:
        _config_dir.reset(token)
        GlobalHydra.instance().clear()
        if active is not None:
            GlobalHydra.instance().initialize(active)
        VersionBase.instance().version_base = base


class StoredConfig(ConfigNode):
    """A config in Hydra's store. Hydra copies the store for each composition, and the configs that
    it reads once more; the copies of the store share this one.
    """

    def __init__(self, group: str | None, name: str, node: Any, package: str | None = None):
        super().__init__(f"{name}.yaml", OmegaConf.create(node), group, package, "xformer_kit")

    def __deepcopy__(self, memo: Any) -> "StoredConfig":
        return self


class ZooConfig(StoredConfig):
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


class HydraSession:
    """The configs that Hydra finds, for one command line: files are expected not to change.

    config_dir: a directory with configs of the user's own, searched after ours. primary: the config
    that a line starts from.
    """

    def __init__(self, config_dir: str | None = None, primary: str = PRIMARY):
        self.config_dir = str(Path(config_dir).resolve()) if config_dir else None
        self.primary = primary
        with initialized(self.config_dir) as loader:
            self.sources = loader.get_sources()
        self.pickled = lru_cache(MAX_CACHED)(
            lambda *choices: pickle.dumps(without_hydra(self.compose(choices, PRIMARY)))
        )
        self.is_group = cache(lambda key: any(source.is_group(key) for source in self.sources))
        self.choices = cache(self._choices)

    def compose(self, words: Sequence[str], primary: str) -> DictConfig:
        """Returns what hydra.compose returns: unresolved, with Hydra's own node."""
        with initialized(self.config_dir):
            return hydra.compose(primary, list(words), return_hydra_config=True)

    def compose_choices(self, *choices: str) -> DictConfig:
        """Returns what hydra.compose returns for a line without values, from our primary config and
        without Hydra's own node: a copy, which a pickle makes in a seventh of the time of a
        deepcopy.
        """
        return pickle.loads(self.pickled(*choices))

    def _choices(self, group: str) -> list[str]:
        """Returns the choices of a group; those in folders by their path: findings/glu_variants."""
        inside = [
            f"{folder}/{name}"
            for folder in self._list(group, ObjectType.GROUP)
            if folder not in (".", "..")  # of a file that the line names, see store_files
            for name in self.choices(f"{group}/{folder}")
        ]
        return [*self._list(group, ObjectType.CONFIG), *inside]

    def groups(self) -> list[str]:
        """Returns the groups of which a command line can choose a config."""
        groups = self._list("", ObjectType.GROUP)
        return [group for group in groups if group not in ("hydra", SWEEPS)]

    def _list(self, group: str, kind: ObjectType) -> list[str]:
        groups = (source for source in self.sources if source.is_group(group))
        return sorted({name for source in groups for name in source.list(group, kind)})


def compose_line(session: HydraSession, line: Sequence[Override], whole: bool) -> DictConfig:
    """Returns what hydra.compose returns for a whole line, which has no sweeps.

    Values are set after all choices, in the order of the line, as Hydra does. Hydra composes the
    line as a whole, with its own node, if `whole`; if a word is neither a choice nor `++key=value`,
    or has an interpolation, which may be to Hydra's own node; if the line, or a primary config of
    the user's own, may add to the search path; and if there is an error, for its message.
    """
    words = [hydra_word(session, override) for override in line]
    choices = [word for word, o in zip(words, line, strict=True) if _is_choice(session, o)]
    values = [o for o in line if not _is_choice(session, o)]
    whole |= session.primary != PRIMARY or any(o.key_or_group == "hydra.searchpath" for o in line)
    whole |= any("${" in word for word in words)
    whole |= any(o.is_delete() or o.package or session.is_group(o.key_or_group) for o in values)
    if not whole:
        config = session.compose_choices(*choices)
        with suppress(OmegaConfBaseException, ValueError):
            return _with_components(session, config, line, values, every=True)
    return _with_components(session, session.compose(words, session.primary), line, values)


def without_hydra(config: DictConfig) -> DictConfig:
    """Returns a composed config without Hydra's own node."""
    if "hydra" in config:
        return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    OmegaConf.set_struct(config, False)
    return config


def _with_components(
    session: HydraSession,
    config: DictConfig,
    line: Sequence[Override],
    values: Sequence[Override],
    every: bool = False,
) -> DictConfig:
    """Returns the config with the components that the line chooses, also where a file names another
    one (position: rope): Hydra merges the values of files over the choices of the line.

    every: whether each value of the line is set, or only those of components that were replaced.
    """
    last = {o.key_or_group: o for o in line}
    replaced = {group: o for group, o in last.items() if _is_named_otherwise(session, config, o)}
    for group, o in replaced.items():
        OmegaConf.set_struct(config, False)
        config[group] = session.compose_choices(o.input_line or "")[group]
    for o in values:
        if every or (o.key_or_group.partition(".")[0] in replaced and not o.is_delete()):
            OmegaConf.update(config, o.key_or_group, o.value(), merge=True, force_add=True)
    return config


def _is_named_otherwise(session: HydraSession, config: DictConfig, override: Override) -> bool:
    """Whether the override chooses components, and the config names others."""
    group, chosen = override.key_or_group, override.value()
    if group not in GROUPS or override.package or not isinstance(chosen, (str, list)):
        return False
    node, registry = config.get(group), GROUPS[group]
    if isinstance(chosen, list):  # several loggers
        return not isinstance(node, DictConfig) or not set(chosen) <= node.keys()
    own = {word: alias.name for word, alias in registry.aliases.items()}
    name = own.get(chosen, chosen)
    if name not in registry:  # a file of the user's own, that names a component
        composed = session.compose_choices(override.input_line or "").get(group)
        name = composed.get("name") if isinstance(composed, DictConfig) else composed
        name = chosen = own.get(name, name)
    if isinstance(node, DictConfig) and registry is LOGGERS and "name" not in node:
        return name not in node
    named = node.get("name") if isinstance(node, DictConfig) else node
    # attn=mqa implies other options than gqa, attn=multi_head none.
    if not isinstance(named, (str, NoneType)):
        return False  # an invalid name, which has its own fault
    return own.get(named, named) != name or (chosen != name and named not in (chosen, name))


def hydra_word(session: HydraSession, override: Override) -> str:
    """Returns the override in the form in which it is passed to Hydra. Composition is open and
    validation is strict: a key that is no group becomes `++key=value`, which sets it whether it
    exists or not.
    """
    text, key = override.input_line or "", override.key_or_group
    is_group, deletes = session.is_group(key), override.is_delete()
    is_null = not deletes and not override.is_sweep_override() and override.value() is None
    if is_null and is_group and key not in GROUPS:
        return f"~{key}"  # experiment=null: none of the group
    unchanged = is_group or deletes or override.is_force_add() or override.package
    return text if unchanged or _is_hydras(override) else f"++{text.lstrip('+')}"


def _is_hydras(override: Override) -> bool:
    """Whether the override is for Hydra's own node, which is not in a composed config."""
    return override.is_hydra_override() or override.key_or_group == "hydra"


def _is_choice(session: HydraSession, override: Override) -> bool:
    """Whether Hydra composes the override with the choices of groups."""
    is_choice = session.is_group(override.key_or_group) and not isinstance(override.value(), dict)
    return is_choice or _is_hydras(override)


def open_session(config_dir: str | None = None, primary: str | None = None) -> HydraSession:
    """Returns a session with all components that are registered now. Without a directory and a
    primary config of the user's own it is the previous session, unless our files or the stored
    configs have changed.
    """
    global _previous
    Plugins.instance()  # plugins store configs of their own when they are first imported
    configs, text = _registered_configs(registry_version())
    if _previous is None or _previous[0] != _state(text):
        _store(configs)
        _previous = _state(text), HydraSession()
    own = config_dir or primary
    return HydraSession(config_dir, primary or PRIMARY) if own else _previous[1]


@lru_cache(maxsize=1)
def _registered_configs(version: int) -> tuple[Configs, str]:
    """Returns the configs of all registered components and settings, also as text, in which 1 is
    not 1.0. version: of the registries.
    """
    configs: Configs = {(None, "settings"): default_settings()}
    for group, registry in GROUPS.items():
        names = [name for name in registry if name not in registry.zoo]
        configs |= {
            (group, other): {**registry.defaults(alias.name), **alias.implied}
            for other, alias in registry.aliases.items()
        }
        node_of = composed_choice if registry is LOGGERS else registry.defaults
        configs |= {(group, name): node_of(name) for name in names}
    for mask in {mask for objective in OBJECTIVES.values() for mask in objective.masks.values()}:
        configs[TASK_DEFAULTS, f"{mask}_mask"] = {"defaults": [{"override /mask": mask}]}
    return configs, repr(configs)


def _state(configs: str) -> tuple[Any, ...]:
    """Returns the content that a session depends on: configs as text, files, and nodes of Hydra's
    store.
    """
    paths = [os.path.join(at, name) for at, _, names in os.walk(conf_dir()) for name in names]
    files = [(path, os.stat(path).st_mtime_ns, os.stat(path).st_size) for path in paths]
    return configs, files, list(_nodes(ConfigStore.instance().repo))


def _nodes(stored: dict[str, Any]) -> Iterator[ConfigNode]:
    for value in stored.values():
        yield from _nodes(value) if isinstance(value, dict) else [value]


def _store(configs: Configs) -> None:
    """Stores the defaults of the settings as the config `settings`, and those of each component as
    a choice of its group; choices that are no longer registered are removed.
    """
    store = ConfigStore.instance()
    for group, name in _stored.keys() - configs.keys():
        store.repo.get(group, {}).pop(f"{name}.yaml", None)
        del _stored[group, name]
    for (group, name), node in configs.items():
        text = repr(node)
        if (group, name) not in _stored or _stored[group, name][0] != text:
            package = "_global_" if group == TASK_DEFAULTS else None
            _stored[group, name] = text, StoredConfig(group, name, node, package)
        choices = store.repo if group is None else store.repo.setdefault(group, {})
        choices[f"{name}.yaml"] = _stored[group, name][1]
    for group, registry in GROUPS.items():
        for name in registry.zoo:
            choices = store.repo.setdefault(group, {})
            choices.setdefault(f"{name}.yaml", ZooConfig(group, name))
