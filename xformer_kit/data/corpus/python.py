"""Corpora from the standard library of Python: its documentation, and its code."""

import ast
import inspect
import os
import sys
import sysconfig
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from xformer_kit.data import files
from xformer_kit.data.corpus.base import CORPORA, Corpus, name_hash
from xformer_kit.registry import Fault

MIN_REPEAT = 80  # characters; a repeated paragraph of at least this length is left out


class _StandardLibrary(Corpus):
    """Base: documents from the standard library, without tests. One document in ten, by the hash of
    its name, is for validation, so that the split is the same in every version of Python. The text
    differs between versions and distributions: see the fingerprint.
    """

    name: ClassVar[str]
    documents = True

    @cached_property
    def library(self) -> Path:
        return Path(sysconfig.get_path("stdlib"))

    @classmethod
    def check(cls, options, context):
        if not any(Path(sysconfig.get_path("stdlib")).glob("*.py")):
            yield Fault(
                "name",
                f"corpus '{cls.name}' needs the sources of the standard library",
                f"none in '{sysconfig.get_path('stdlib')}'",
                "Use data=text data.path=FILE, or a Python that has them.",
            )

    def stamp(self) -> list[Any]:
        modules = files.stamp(self.library / name for name in self._modules())
        return [*super().stamp(), sys.version, modules]

    def texts(self, split: str) -> Iterator[str]:
        for name, text in self._documents.items():
            if (split == "valid") == _for_validation(name):
                yield text + "\n\n"

    def size(self) -> int:
        return sum(map(len, self._documents.values()))

    @cached_property
    def _documents(self) -> dict[str, str]:
        """Name -> text."""
        raise NotImplementedError

    def _modules(self) -> list[str]:
        """Returns the paths of the modules, relative to the library, sorted, without tests and
        installed packages.
        """
        skipped = {"test", "tests", "idle_test", "__pycache__", "site-packages", "dist-packages"}
        modules = []
        for folder, subfolders, names in os.walk(self.library):
            subfolders[:] = [name for name in subfolders if name not in skipped]
            modules += [
                Path(folder, name).relative_to(self.library).as_posix()
                for name in names
                if name.endswith(".py") and not name.startswith(("test_", "_sysconfigdata"))
            ]
        return sorted(modules)


@CORPORA.register("pydoc", similar=("stdlib", "python"))
class PyDoc(_StandardLibrary):
    """English prose that comes with Python: its reference topics and the docstrings of its standard
    library.

    A document is one topic, or the docstrings of one module, so that the methods of a class are all
    in one split. A docstring or a long paragraph that occurs in several documents is kept once.
    Tests are left out. One document in ten, by the hash of its name, is for validation, so that the
    split is the same in every version of Python. The text differs between versions and
    distributions: see the fingerprint.
    """

    name = "pydoc"

    @cached_property
    def _documents(self) -> dict[str, str]:
        """Name -> text; topics before modules, so that topics keep shared paragraphs."""
        documents: dict[str, str] = {}
        seen: set[str] = set()
        for name, texts in self._sources():
            if new_texts := [*filter(None, (_without_repeats(text, seen) for text in texts))]:
                documents[name] = "\n\n".join(new_texts)
        return documents

    def _sources(self) -> Iterator[tuple[str, Iterable[str]]]:
        """Yields the name and the texts of each document."""
        try:
            topics = import_module("pydoc_data.topics").topics
        except ImportError:  # a distribution without it
            topics = {}
        for topic in sorted(topics):
            yield f"topic {topic}", [_clean(topics[topic])]
        for name in self._modules():
            if not name.startswith("pydoc_data/"):
                yield f"module {name}", _docstrings(self.library / name)


@CORPORA.register("stdlib_code", similar=("python_code", "code"))
class StdlibCode(_StandardLibrary):
    """The sources of Python's standard library, without tests; about 12 MB.

    A document is a module; of modules with the same content, the first is kept. One document in
    ten, by the hash of its name, is for validation, so that the split is the same in every version
    of Python. The text differs between versions and distributions: see the fingerprint.
    """

    name = "stdlib_code"

    @cached_property
    def _documents(self) -> dict[str, str]:
        names: dict[str, str] = {}  # text -> the first module with it
        for name in self._modules():
            names.setdefault(_source(self.library / name), name)
        return {name: text for text, name in names.items() if text}


def _for_validation(name: str) -> bool:
    """Whether a document is for validation: one name in ten."""
    return name_hash(name) % 10 == 0


def _without_repeats(text: str, seen: set[str]) -> str:
    """Returns the text without its long paragraphs that are in `seen`, and "" if the text itself
    is; adds text and paragraphs to `seen`.
    """
    text_key = " ".join(text.split())
    if text_key in seen:
        return ""
    seen.add(text_key)
    kept = []
    for paragraph in text.split("\n\n"):
        key = " ".join(paragraph.split())
        if len(key) < MIN_REPEAT or key not in seen or key == text_key:
            kept.append(paragraph)
        if len(key) >= MIN_REPEAT:
            seen.add(key)
    return "\n\n".join(kept)


def _docstrings(file: Path) -> list[str]:
    """Returns the docstrings of a module, its classes and functions, in the order of the source."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old escapes in strings
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    return [_clean(text) for text in _iterate_docstrings(tree) if text]


def _source(file: Path) -> str:
    """Returns the text of a module, decoded as it declares, without NULs and spaces at its ends."""
    try:
        with tokenize.open(file) as source:
            return source.read().replace("\0", "").strip()
    except (OSError, SyntaxError, ValueError):
        return ""


def _iterate_docstrings(node: ast.AST) -> Iterator[str | None]:
    """Yields the docstring of a module, a class or a function, and of those inside it."""
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield ast.get_docstring(node, clean=False)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield from _iterate_docstrings(child)


def _clean(text: str) -> str:
    """Removes indentation, trailing spaces, NULs and characters that utf-8 cannot encode."""
    text = inspect.cleandoc(text).replace("\0", "").encode("utf-8", "ignore").decode()
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()
