"""Limits of the sizes of files, lines, functions and constructors in xformer_kit and tasks, and of
test files.
"""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE = [
    path for folder in ("xformer_kit", "tasks") for path in sorted((ROOT / folder).rglob("*.py"))
]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
Sizes = Iterator[tuple[str, int]]  # name within the file, size


def lines_ofs(path: Path) -> Sizes:
    yield "", len(path.read_text(encoding="utf-8").splitlines())


def characters_of_lines(path: Path) -> Sizes:
    """Yields the length of the longest line, with a `noqa` comment, which ruff does not count."""
    lines = path.read_text(encoding="utf-8").splitlines()
    yield "", max(map(len, lines), default=0)


def lines_of_functions(path: Path) -> Sizes:
    """Yields the lines of each function, without decorators."""
    for name, node in functions(parsed(path)):
        yield name, node.end_lineno - node.lineno + 1


def arguments_of_constructors(path: Path) -> Sizes:
    """Yields the number of arguments of each constructor, without self."""
    for name, node in functions(parsed(path)):
        if name.endswith("__init__"):
            args = node.args
            starred = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
            yield name, len([*args.posonlyargs, *args.args, *args.kwonlyargs, *starred]) - 1


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(node: ast.AST, owner: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yields (qualified name, function) for each function, also in classes and functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{owner}.{child.name}" if owner else child.name
            if not isinstance(child, ast.ClassDef):
                yield name, child
            yield from functions(child, name)
        else:
            yield from functions(child, owner)


LIMITS: dict[Callable[[Path], Sizes], int] = {
    lines_ofs: 400,
    characters_of_lines: 100,
    lines_of_functions: 50,
    arguments_of_constructors: 12,
}
FILES = {lines_ofs: CODE + TESTS}  # measure -> files, if they are not CODE


def larger(measure: Callable[[Path], Sizes], limit: int) -> dict[str, int]:
    """Returns everything whose size is above a limit, with its size."""
    found = {}
    for path in FILES.get(measure, CODE):
        place = str(path.relative_to(ROOT))
        for name, size in measure(path):
            if size > limit:
                found[f"{place} {name}".strip()] = size
    return found


@pytest.mark.parametrize("measure", LIMITS)
def test_nothing_is_larger_than_its_limit(measure):
    found = larger(measure, LIMITS[measure])
    assert not found, f"more than {LIMITS[measure]} {measure.__name__.replace('_', ' ')}: {found}"


SOURCE = """
class A:
    def __init__(self, a, /, b, *c, d=1, **e):
        def f():
            pass
"""


def test_sizes_of_a_small_file(tmp_path):
    path = tmp_path / "file.py"
    path.write_text(SOURCE)
    assert dict(lines_ofs(path)) == {"": 5}
    assert dict(characters_of_lines(path)) == {"": 46}
    assert dict(lines_of_functions(path)) == {"A.__init__": 3, "A.__init__.f": 2}
    assert dict(arguments_of_constructors(path)) == {"A.__init__": 5}
