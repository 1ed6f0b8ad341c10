"""Modules of a user's component files. They have names that no import statement finds, so a process
that reads pickled objects of their classes must make the modules first.
"""

import hashlib
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

PREFIX = "xformer_kit_components_"
UserModule = tuple[str, str, bytes]  # (name, file, source)


class SourceLoader(SourceFileLoader):
    """Loader that compiles the source each time, and keeps it. Python's own loader uses the cached
    bytecode of a file that changed within the same second and kept its length.
    """

    source: bytes | None = None  # None: that of the file

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        if self.source is None:
            self.source = self.get_data(path)
        return self.source_to_code(self.source, path)


def module_name(path: Path) -> str:
    """Returns the name of the module of a file."""
    return f"{PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def run_module(name: str, path: str, source: bytes | None = None) -> None:
    """Runs a file as the module `name`; source: its content, if that may have changed since."""
    loader = SourceLoader(name, path)
    loader.source = source
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None  # of a loader with a file
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        loader.exec_module(sys.modules[name])
    except BaseException:  # as an import statement does; loader processes would raise it again
        sys.modules.pop(name, None)
        raise


def user_modules() -> list[UserModule]:
    """Returns the modules of this process, in the order in which they were imported."""
    found: list[UserModule] = []
    for name, module in sys.modules.items():
        loader = getattr(module.__spec__, "loader", None) if name.startswith(PREFIX) else None
        if isinstance(loader, SourceLoader) and loader.source is not None:
            found.append((name, loader.path, loader.source))
    return found


def run_missing(modules: list[UserModule]) -> None:
    """Runs the modules that this process does not have."""
    for name, path, source in modules:
        if name not in sys.modules:
            run_module(name, path, source)
