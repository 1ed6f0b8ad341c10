"""The table of other libraries' capabilities: names of ours compose, and names of theirs exist."""

import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

from xformer_kit import ConfigError, compose
from xformer_kit.config import GROUPS, NESTED_GROUPS
from xformer_kit.extra import EXTRAS
from xformer_kit.registry import nested

PAGE = (Path(__file__).parents[2] / "docs" / "peers.md").read_text(encoding="utf-8")
COLUMNS = ["x-transformers", "xformers", "litgpt", "OLMo-core"]


def rows() -> list[list[str]]:
    """Cells of the table: kind, here, what it is, and the names of each library."""
    table = PAGE[PAGE.index("| kind |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[2:]]


def ours() -> list[str]:
    """What the column `here` holds: a component or option, or a component and its option."""
    return sorted({here.replace("`", "") for _, here, *_ in rows()} - {"no", "own component"})


def exists(words: str) -> bool:
    """Whether `kind=name`, `kind.option`, `kind.option=value`, `model.key`, or the option in
    `kind=name, option` is in the config.
    """
    word, _, option = words.partition(", ")
    path, _, name = word.partition("=")
    if (registry := (GROUPS | NESTED_GROUPS).get(path)) is not None:
        return name in registry and (not option or option in registry.options(name))
    kind, _, option = path.partition(".")
    if kind == "extra":
        return option in EXTRAS
    if kind in ("attn", "ffn") and name:
        return takes(path, name)
    try:
        compose([f"{path}=null"])
    except ConfigError as error:
        return "no such key" not in str(error) and "has no option" not in str(error)
    return True


def takes(path: str, value: str) -> bool:
    """Whether the default component of a kind takes a value of an option."""
    kind, _, option = path.partition(".")
    of_default = GROUPS[kind].options({"attn": "multi_head", "ffn": "mlp"}[kind])[option]
    registry = nested(of_default.type)
    return value in registry if registry is not None else value in str(of_default.type)


def test_what_is_named_here_exists():
    assert [word for word in ours() if not exists(word)] == []


def test_what_does_not_exist_is_found():
    assert not any(
        map(
            exists,
            ["attn=lasr", "attn=laser, no_such", "attn.no_such", "model.no_such", "extra.no_such"],
        )
    )
    assert not exists("attn.qk_norm=no_such")


def test_every_row_names_something_of_another_library_and_none_twice():
    header = PAGE[PAGE.index("| kind |") :].splitlines()[0]
    assert [cell.strip() for cell in header.split("|")[4:-1]] == COLUMNS
    for column in range(3, 7):
        names = [(row[0], n) for row in rows() for n in re.findall(r"`([^`]+)`", row[column])]
        assert len(set(names)) == len(names)
    assert all(any(row[3:]) for row in rows())


@pytest.mark.parametrize(
    ("column", "library", "package"),
    [(3, "x-transformers", "x_transformers"), (5, "litgpt", "litgpt")],
)
def test_the_libraries_have_what_is_listed(column, library, package):
    try:
        installed = version(library)
    except PackageNotFoundError:
        pytest.skip(f"{library} is not installed")
    if f"| {library} | {installed}," not in PAGE:
        pytest.skip(f"the page was written for another version than {installed}")
    folder = Path(find_spec(package).submodule_search_locations[0])
    source = "\n".join(path.read_text() for path in folder.glob("*.py"))
    for row in rows():
        for name in re.findall(r"`([^`]+)`", row[column]):
            flag = name.partition("=")[0]
            own_word = re.sub("^(attn|ff)_", "", flag)  # it hands attn_x to its attention as x
            assert re.search(rf"\b({flag}|{own_word})\b", source), name
