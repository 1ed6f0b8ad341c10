"""Registries -> Hydra groups, and overrides -> what Hydra composes of them.

Composing takes Hydra a quarter of a second, most of it for the files and parts that are chosen, and the lines of a study, a
notebook or a session choose the same ones again and again. So what was composed of choices is kept, and values are laid over a
copy of it: by Hydra's own function, in the order of the line, as it does itself behind the choices.
"""

import copy
import os
from functools import lru_cache
from typing import Any, NamedTuple

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from xformer_kit.config.check import GROUPS

KEPT = 64  # compositions
MOST = 2000  # entries of the directories with configs; in larger ones changes are not looked for, and nothing is kept
_stored: dict[tuple[str, str], str] = {}  # group and name -> the node that Hydra has, written out: 1 is not 1.0


class Kept(NamedTuple):
    """What was composed of choices, valid as long as Hydra's nodes and files are those it was composed of."""

    nodes: list[ConfigNode]
    files: list[tuple[str, int, int]]  # path, time of its last change in ns, bytes
    config: DictConfig


_kept: dict[tuple[str, ...], Kept] = {}


def store() -> None:
    """Make every registered part a choice of its Hydra group."""
    for group, registry in GROUPS.items():
        for name in registry:
            node = registry.defaults(name)
            if _stored.get((group, name)) != (said := repr(node)):
                ConfigStore.instance().store(group=group, name=name, node=node, provider="xformer_kit")
                _stored[group, name] = said
        for group_, name in [pair for pair in _stored if pair[0] == group and pair[1] not in registry]:
            ConfigStore.instance().repo.get(group_, {}).pop(f"{name}.yaml", None)
            del _stored[group_, name]


def loaded(loader: ConfigLoaderImpl, texts: list[str], name: str | None, faults: list[str]) -> DictConfig | None:
    """What Hydra composes of a command line, without its own node; None where it cannot, which becomes a fault."""
    try:
        config = _composed(loader, texts, name or "train")
        OmegaConf.set_struct(config, False)
        OmegaConf.resolve(config)
        return config
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        what = " ".join(str(error).split("\n")[0].split())
        faults.append(f"{getattr(error, 'full_key', None) or 'config'}: cannot be composed: {what.rstrip('.')}.")
        return None


def _composed(loader: ConfigLoaderImpl, texts: list[str], name: str) -> DictConfig:
    overrides = [parsed(text) for text in texts]
    files = _files(loader)
    if files is None or any(override.is_sweep_override() for override in overrides):
        return _whole(loader, texts, name)[0]
    chosen = [_chooses(loader, override) for override in overrides]
    choices = [text for text, chooses in zip(texts, chosen, strict=True) if chooses]
    key, nodes = (name, *(path for path, *_ in files), *choices), _nodes(ConfigStore.instance().repo)
    kept = _kept.get(key)
    # Nodes are compared by what they are: those that are kept live, so that no other has their address.
    if kept is None or kept.files != files or list(map(id, kept.nodes)) != list(map(id, nodes)):
        config, alone = _whole(loader, choices, name)
        kept = Kept(nodes, files, config)
        if alone:
            while len(_kept) >= KEPT:
                del _kept[next(iter(_kept))]
            _kept[key] = kept
    config = copy.deepcopy(kept.config)
    values = [override for override, chooses in zip(overrides, chosen, strict=True) if not chooses]
    ConfigLoaderImpl._apply_overrides_to_config(values, config)
    return config


def _whole(loader: ConfigLoaderImpl, texts: list[str], name: str) -> tuple[DictConfig, bool]:
    """All that Hydra makes of a line, and whether from the loader's own directories alone: a file may name further ones."""
    config = loader.load_configuration(name, texts, run_mode=RunMode.RUN)
    alone = len(config.hydra.runtime.config_sources) == len(loader.repository.get_sources())
    OmegaConf.set_readonly(config, False)
    OmegaConf.set_struct(config, False)
    config.pop("hydra")
    OmegaConf.set_struct(config, True)  # as it is where Hydra lays values over it
    return config, alone


def _chooses(loader: ConfigLoaderImpl, override: Override) -> bool:
    """Whether Hydra takes an override for the choice of a group, as its defaults list does; or it is about Hydra's own node,
    which is not in what is kept."""
    return override.is_hydra_override() or (
        loader.repository.group_exists(override.key_or_group) and not isinstance(override.value(), dict)
    )


@lru_cache(1024)
def parsed(text: str) -> Override:
    return OverridesParser.create().parse_override(text)


def _nodes(repository: dict[str, Any]) -> list[ConfigNode]:
    found: list[ConfigNode] = []
    for value in repository.values():
        found += _nodes(value) if isinstance(value, dict) else [value]
    return found


def _files(loader: ConfigLoaderImpl) -> list[tuple[str, int, int]] | None:
    """The YAML files that Hydra may read, with what tells whether they changed; None where they are too many to look at, or
    cannot be looked at."""
    found: list[tuple[str, int, int]] = []
    left = MOST
    for source in loader.repository.get_sources():
        waiting = [source.path] if source.scheme() == "file" and os.path.isdir(source.path) else []
        while waiting:
            try:
                entries = list(os.scandir(waiting.pop()))
                waiting += [entry.path for entry in entries if entry.is_dir()]
                files = [entry for entry in entries if entry.name.endswith((".yaml", ".yml")) and entry.is_file()]
                found += [(file.path, file.stat().st_mtime_ns, file.stat().st_size) for file in files]
            except OSError:
                return None
            if (left := left - len(entries)) < 0:
                return None
    return sorted(found)
