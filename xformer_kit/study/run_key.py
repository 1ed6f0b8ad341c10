"""The key of a run: a hash of everything that determines its result (config, code of its components
and data).
"""

import ast
import hashlib
import inspect
import json
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from xformer_kit.config import GROUPS, NESTED_GROUPS, config_hash
from xformer_kit.config.options.logger_options import LOGGERS
from xformer_kit.registry import Registry
from xformer_kit.study.nodes import Node

INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")  # sysconfig paths of installed packages
OWN_PACKAGES = "xformer_kit", "tasks"
USER_MODULE_PREFIX = (
    "xformer_kit_components_"  # prefix of modules of the user's own component files
)


def run_key(config: Node, fingerprint: str, weights: str = "") -> str:
    """A key of 16 hex digits. fingerprint: hash of the prepared data. weights: hash of those that
    the run starts from, `init_from`.

    Logger, paths, workers and intervals of logging are left out, as in `config_hash`. The code is
    that of the files in which the chosen components are registered, and of the files that the
    user's own components import: a changed component gives another key.
    """
    parts = [
        config_hash(config),
        fingerprint,
        *([weights] if weights else ()),
        *sorted(map(code_hash, set(component_modules(config)))),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def component_modules(node: Any, registry: Registry | None = None) -> Iterator[str]:
    """The modules of all components that a config names, at any depth, without the loggers."""
    if registry is not None and isinstance(node, (str, bool)):
        node = registry.as_node(node)
    if not isinstance(node, Mapping):
        for item in node if isinstance(node, (list, tuple)) else ():
            yield from component_modules(item, registry)
        return
    name = node.get("name")
    if registry is not None and name in registry:
        yield registry[name].__module__
        inner = registry.inner(name)
    else:
        inner = {}
    for key, value in node.items():
        if GROUPS.get(key) is LOGGERS:
            continue
        yield from component_modules(
            value,
            inner.get(key)
            or GROUPS.get(key)
            or NESTED_GROUPS.get(key)
            or (registry if key == "of" else None),
        )


def code_hashes(config: Node) -> dict[str, str]:
    """Module -> sha256 of its source, for the components that a config names, without those of the
    user's own files.
    """
    return {
        name: code_hash(name)
        for name in sorted(set(component_modules(config)))
        if not name.startswith(USER_MODULE_PREFIX)
    }


@cache
def code_hash(module: str) -> str:
    """sha256 of a module's source; of its name if there is no source."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError, KeyError):  # built at run time, in a notebook
        source = module
    if module.startswith(USER_MODULE_PREFIX):
        source += "".join(path.read_text() for path in sorted(_imported_files(source, set())))
    return hashlib.sha256(source.encode()).hexdigest()


def _imported_files(source: str, found: set[Path]) -> set[Path]:
    """Files that a source imports, directly or indirectly, that are not in an installed package."""
    for name in _imported_names(ast.parse(source)):
        spec = None
        with suppress(ImportError, ValueError, AttributeError):
            spec = getattr(sys.modules.get(name), "__spec__", None) or find_spec(name)
        path = Path(spec.origin) if spec is not None and spec.origin else None
        if (
            path is None
            or path.suffix != ".py"
            or path in found
            or name.partition(".")[0] in OWN_PACKAGES
        ):
            continue
        if not any(path.is_relative_to(folder) for folder in map(sysconfig.get_path, INSTALLED)):
            found.add(path)
            _imported_files(path.read_text(), found)
    return found


def _imported_names(tree: ast.AST) -> Iterator[str]:
    """Names that may be modules: `import a.b`; `from a import b`, where b may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
