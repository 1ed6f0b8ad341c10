"""The imports of xformer_kit and tasks, read from the source, and those that are not allowed."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.allowed_imports import DIVIDED, LAYERS

ROOT = Path(__file__).resolve().parents[1]
PLACES = {folder: place for place, layer in enumerate(LAYERS) for folder in layer}


class Import(NamedTuple):
    """One import statement: `late` inside a function."""

    file: str
    module: str  # "torch.nn", "xformer_kit.plan"
    late: bool


def imports(source: str, file: str) -> Iterator[Import]:
    """Yields the imports of a file, except those for types only."""

    def walk(node: ast.AST, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                yield from (Import(file, alias.name, late) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{file}: imports must be absolute"
                packages = child.module == "xformer_kit" or (
                    child.module.split(".")[0] == "tasks"
                    and (ROOT / child.module.replace(".", "/")).is_dir()
                )
                names = (
                    [f"{child.module}.{alias.name}" for alias in child.names]
                    if packages
                    else [str(child.module)]
                )
                yield from (Import(file, name, late) for name in names)
            yield from walk(
                child,
                late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda),
            )

    return walk(ast.parse(source), False)


def imports_of_files(pattern: str) -> list[Import]:
    """Returns the imports of all files that match a pattern."""
    files = sorted(ROOT.glob(pattern))
    assert files
    return [
        found for file in files for found in imports(file.read_text(), str(file.relative_to(ROOT)))
    ]


def unit(name: str) -> str:
    """Returns the folder of a file or module in LAYERS: xformer_kit/attention/base.py or
    xformer_kit.attention.base -> attention; xformer_kit.config.line.flags -> config/line;
    tasks/run/start.py -> tasks/run; a file next to the folders is one of its own.
    """
    package, *inside = name.removesuffix(".py").replace("/", ".").split(".")
    inside = [part for part in inside if part != "__init__"]
    if package == "tasks":
        return "/".join(["tasks", *inside[:1]]) if inside and inside[0].islower() else "tasks"
    folder, *below = inside or ["__init__"]
    if folder in DIVIDED and below and f"{folder}/{below[0]}" in PLACES:
        return f"{folder}/{below[0]}"
    return folder if folder in PLACES else "__init__"


def registries() -> set[str]:
    """Returns the names of all registries."""
    return {
        node.targets[0].id
        for path in ROOT.glob("xformer_kit/**/*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "Registry"
        and isinstance(node.targets[0], ast.Name)
    }


def used_names(source: str) -> set[str]:
    """Returns the names that code uses, except X in `X.register`."""
    tree = ast.parse(source)
    registering = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "register"
    }
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and id(node) not in registering
    }


@cache
def library_imports() -> list[Import]:
    """Returns the imports of all files of xformer_kit."""
    return imports_of_files("xformer_kit/**/*.py")


@cache
def tasks_imports() -> list[Import]:
    """Returns the imports of all files of tasks."""
    return imports_of_files("tasks/**/*.py")


def faults(found: list[Import]) -> list[str]:
    """Returns every import of a folder that is not in a layer before that of the importing one. The
    __init__ of a divided folder exports names of its subfolders.
    """
    wrong = set()
    for one in found:
        if one.module.split(".")[0] not in ("xformer_kit", "tasks"):
            continue
        here, there = unit(one.file), unit(one.module)
        exports = one.file.endswith("__init__.py") and there.startswith(f"{here}/")
        if here != there and PLACES[there] >= PLACES[here] and not exports:
            wrong.add(f"{here} imports {there}")
    return sorted(wrong)


def cycle(found: list[Import], package: str, late: bool) -> set[str]:
    """Returns the files of a package that import each other, and those that import them. `late`:
    with imports at call time.

    An __init__, which exports the names of its folder, is left out.
    """
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob(f"{package}/**/*.py")} | {
        one.file for one in found
    }
    graph: dict[str, set[str]] = {file: set() for file in files}
    for one in found:
        path = one.module.replace(".", "/")
        target = next(
            (f"{p}.py" for p in (path, path.rpartition("/")[0]) if f"{p}.py" in files), None
        )
        if target and (late or not one.late):
            graph[one.file].add(target)
    while leaves := {file for file, needs in graph.items() if not needs & set(graph) - {file}}:
        graph = {file: needs for file, needs in graph.items() if file not in leaves}
    return set(graph)
