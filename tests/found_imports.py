"""The imports of xformer_kit and tasks, read from the source, and those that are not allowed."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.allowed_imports import LATE, MAY, TASKS_LATE, TASKS_MAY

ROOT = Path(__file__).resolve().parents[1]


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
    """Returns the unit of a file or module: xformer_kit/attention/base.py or
    xformer_kit.attention.base -> attention; xformer_kit/model/head.py -> model.head; a name of the
    package -> __init__.
    """
    components = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__").split(".")
    if (of_model := ".".join(components[1:3])) in MAY and components[1] == "model":
        return of_model
    return components[1] if len(components) > 1 and components[1] in MAY else "__init__"


def tasks_unit(name: str) -> str:
    """Returns the unit of a file or module of tasks: tasks/process/seeds.py -> run.seeds;
    tasks.run.trainer -> run; tasks/modules/data.py -> modules.
    """
    components = name.removesuffix(".py").replace("/", ".").split(".")[1:]
    if (in_run := ".".join(components[:2])) in TASKS_MAY:
        return in_run
    if not components or components[0][0].isupper():  # tasks.Config, which __init__ defines
        return "__init__"
    return components[0] if components[0] in TASKS_MAY else "modules"


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


def between_units(found: list[Import]) -> Iterator[tuple[str, str, bool]]:
    """Yields (importing unit, imported unit, late) for each import of another unit."""
    for one in found:
        if one.module.split(".")[0] == "xformer_kit" and unit(one.file) != unit(one.module):
            yield unit(one.file), unit(one.module), one.late


def faults(found: list[Import]) -> list[str]:
    """Returns every import between units of the library that is not allowed."""
    wrong = []
    for here, there, late in between_units(found):
        if there not in MAY[here] and not (late and (here, there) in LATE):
            wrong.append(f"{here} imports {there}")
    return sorted(set(wrong))


def task_faults(found: list[Import]) -> list[str]:
    """Returns every import between units of tasks that is not allowed."""
    wrong = set()
    for one in found:
        here, there = tasks_unit(one.file), tasks_unit(one.module)
        allowed = {here, *TASKS_MAY[here]}
        late = one.late and (here, there) in TASKS_LATE
        if one.module.split(".")[0] == "tasks" and there not in allowed and not late:
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
