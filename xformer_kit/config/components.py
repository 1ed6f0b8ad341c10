"""A user's own components: Python files and installed packages that register them before
composition.

They are named by an instruction of the command line (`components=[my_components.py]`) or by the
entry-point group `xformer_kit.components`; a saved config never names code.
"""

import hashlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType

from xformer_kit.config.check import INNER, MAPPING_GROUPS
from xformer_kit.registry import ConfigError, Fault, Registry

_loaded: dict[Path, str] = {}  # file -> sha256 of what was imported


def import_components(
    files: Iterable[str],
    registries: Iterable[Registry],
    refused: list[tuple[str, ConfigError]] | None = None,
) -> dict[str, str]:
    """Import the files; a file that has changed is imported again. Returns file name -> sha256.

    Raises ConfigError with every fault: a missing file, a syntax error (with its line), a component
    that the registry refuses. If `refused` is given, it gets such components and their errors, and
    the others of the file are registered.
    """
    registries, hashes, faults = [*registries, *MAPPING_GROUPS.values(), *INNER.values()], {}, []
    for entry in _installed():
        entry.load()
    for file in files:
        if not isinstance(file, str):
            faults.append(
                Fault(
                    "components",
                    "must list Python files",
                    got=f"{file!r}",
                    fix="Try components=[my_components.py].",
                )
            )
            continue
        path = Path(file).expanduser().resolve()
        try:
            source = path.read_bytes()
        except OSError as error:
            faults.append(
                Fault(
                    "components",
                    f"cannot read {file}: {error.strerror}",
                    fix="Name a Python file that registers components.",
                )
            )
            continue
        digest = hashlib.sha256(source).hexdigest()
        if _loaded.get(path) != digest:
            found = _import(path, file, registries, refused)
            faults += found
            if found or refused:
                _loaded.pop(path, None)  # the next import reports it again
            else:
                _loaded[path] = digest
        hashes[path.name] = digest
    if faults:
        raise ConfigError(faults)
    return hashes


def _installed() -> tuple[EntryPoint, ...]:
    """The entry points of installed packages. Reading them takes a third of the time of composing,
    so they are kept until a directory of packages changes.
    """
    paths = (path or "." for path in sys.path)
    return _entry_points(
        tuple((path, os.stat(path).st_mtime_ns) for path in paths if os.path.exists(path))
    )


@lru_cache(1)
def _entry_points(directories: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group="xformer_kit.components"))


class _SourceLoader(SourceFileLoader):
    """Compiles the source each time. Python's own loader takes cached bytecode for a file of the
    same second and length.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _import(
    path: Path,
    file: str,
    registries: list[Registry],
    refused: list[tuple[str, ConfigError]] | None,
) -> list[Fault]:
    name = (
        f"xformer_kit_components_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    )
    for registry in registries:
        registry.forget(name)
        registry.refused = refused
    loader = _SourceLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    try:
        loader.exec_module(module)
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
