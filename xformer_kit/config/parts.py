"""A user's own parts: Python files and installed packages that register them before composition.

They are an instruction of the command line (`parts=[my_parts.py]`) or of the entry-point group
`xformer_kit.parts`; a saved config never names code.
"""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType

from xformer_kit.config.check import INNER, MANY
from xformer_kit.registry import ConfigError, Registry

_loaded: dict[Path, str] = {}  # file -> sha256 of what was imported


def import_parts(files: Iterable[str], registries: Iterable[Registry]) -> dict[str, str]:
    """Import the files; a file that changed since is imported anew. Returns file name -> sha256.

    Raises ConfigError with every fault: a missing file, a syntax error (with its line), a part that
    is refused.
    """
    registries, hashes, faults = [*registries, *MANY.values(), *INNER.values()], {}, []
    for entry in _installed():
        entry.load()
    for file in files:
        if not isinstance(file, str):
            faults.append(f"parts: must list Python files; got {file!r}. Try parts=[my_parts.py].")
            continue
        path = Path(file).expanduser().resolve()
        try:
            source = path.read_bytes()
        except OSError as error:
            faults.append(
                f"parts: cannot read {file}: {error.strerror}. Name a Python file that registers"
                " parts."
            )
            continue
        digest = hashlib.sha256(source).hexdigest()
        if _loaded.get(path) != digest:
            if refused := _import(path, file, registries):
                faults += refused
                _loaded.pop(path, None)  # asked for again, it is answered again
                continue
            _loaded[path] = digest
        hashes[path.name] = digest
    if faults:
        raise ConfigError(faults)
    return hashes


def _installed() -> tuple[EntryPoint, ...]:
    """What installed packages offer. To look into each takes a third of the time of composing, so
    it is looked again only where a directory of packages has changed.
    """
    there = (path or "." for path in sys.path)
    return _offered(
        tuple((path, os.stat(path).st_mtime_ns) for path in there if os.path.exists(path))
    )


@lru_cache(1)
def _offered(directories: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group="xformer_kit.parts"))


class _Fresh(SourceFileLoader):
    """Reads the source each time. Python's own takes kept bytecode for a file of the same second
    and length.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _import(path: Path, file: str, registries: list[Registry]) -> list[str]:
    name = f"xformer_kit_parts_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    for registry in registries:
        registry.forget(name)
    loader = _Fresh(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))  # type: ignore[arg-type]
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        return [f"parts: cannot read {file}: {line}{error.msg}."]
    except ConfigError as error:
        return [f"parts: {file}: {fault}" for fault in error.faults]
    except (Exception, SystemExit) as error:
        line, said = _line(error, path), f": {error}" if str(error) else ""
        return [f"parts: {file}{line} raised {type(error).__name__}{said}."]
    return []


def _line(error: BaseException, path: Path) -> str:
    trace, line = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = f", line {trace.tb_lineno},"
        trace = trace.tb_next
    return line
