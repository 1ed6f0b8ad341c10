"""Import of a user's own components: Python files and installed packages that register them.

The files are named by an instruction of the command line (`components=[my_components.py]`), the
packages by the entry-point group `xformer_kit.components`; a saved config never names code.
"""

import hashlib
import os
import sys
import traceback
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from xformer_kit.config.options.groups import MAPPING_GROUPS, NESTED_GROUPS
from xformer_kit.files.saved_files import readable
from xformer_kit.files.user_modules import module_name, run_module
from xformer_kit.registry import ConfigError, Fault, Registry
from xformer_kit.text.user_path import user_path

_loaded: dict[Path, str] = {}  # file -> sha256 of the source that was imported
Refused = list[tuple[str, ConfigError]] | None  # (component, error) that a registry refused


def import_components(
    files: Iterable[str], registries: Iterable[Registry], refused: Refused = None
) -> dict[str, str]:
    """Imports the files and returns {file name: sha256}; a file that has changed is imported again.

    Raises ConfigError with every fault: a missing file, a syntax error (with its line), a component
    that the registry refuses. If `refused` is a list, such components and their errors are appended
    to it, and the others of the file are registered.
    """
    registries = [*registries, *MAPPING_GROUPS.values(), *NESTED_GROUPS.values()]
    hashes, faults = {}, []
    for entry in _installed():
        entry.load()
    for file in files:
        if not isinstance(file, str):
            fix = "Try components=[my_components.py]."
            faults.append(Fault("components", "must list Python files", f"{file!r}", fix))
            continue
        path = user_path(file).resolve()
        try:
            digest = hashlib.sha256(readable(path).read_bytes()).hexdigest()
        except OSError as error:
            fix = "Name a Python file that registers components."
            faults.append(Fault("components", f"cannot read {file}: {error.strerror}", fix=fix))
            continue
        if _loaded.get(path) != digest:
            new_faults = _import(path, file, registries, refused)
            faults += new_faults
            if new_faults or refused:
                _loaded.pop(path, None)  # the next import reports it again
            else:
                _loaded[path] = digest
        hashes[path.name] = digest
    if faults:
        raise ConfigError(faults)
    return hashes


def _installed() -> tuple[EntryPoint, ...]:
    """Returns the entry points of installed packages. Reading them takes a third of the time of
    composing, so they are cached until a directory of packages changes.
    """
    paths = (path or "." for path in sys.path)
    return _entry_points(
        tuple((path, os.stat(path).st_mtime_ns) for path in paths if os.path.exists(path))
    )


@lru_cache(1)
def _entry_points(directories: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group="xformer_kit.components"))


def _import(path: Path, file: str, registries: list[Registry], refused: Refused) -> list[Fault]:
    """Imports a file and returns the faults that prevented it; file: its name in messages."""
    name = module_name(path)
    sys.modules.pop(name, None)  # loader processes get a copy of it
    for registry in registries:
        registry.forget(name)
        registry.refused = refused
    try:
        run_module(name, str(path))
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        return [Fault("components", f"cannot read {file}: {line}{error.msg}")]
    except ConfigError as error:
        return [fault.under(f"components: {file}") for fault in error.faults]
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        place = f"{file}, line {lines[-1]}," if lines else file
        message = f": {error}" if str(error) else ""
        return [Fault("components", f"{place} raised {type(error).__name__}{message}")]
    finally:
        for registry in registries:
            registry.refused = None
    return []
