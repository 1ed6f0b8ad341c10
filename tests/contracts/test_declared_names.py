"""CONTRIBUTING lists every name that components declare and other code reads."""

import re

import pytest
from declared_names import LIBRARY, ROOT, declared

MOST = 30
# Methods that every kind may have, for which CONTRIBUTING has sentences.
METHODS = {"check", "cannot", "initial"}
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def rows(header: str) -> list[list[str]]:
    """Cells of the table with this header."""
    lines = TEXT[TEXT.index(header) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def words(cell: str) -> set[str]:
    return {word for code in re.findall(r"`([^`]+)`", cell) for word in re.findall(r"^\w+", code)}


def contract() -> dict[str, set[str]]:
    """Kind -> methods and modules that CONTRIBUTING's table of kinds names."""
    found = {kind: words(must) for kind, *_, must in rows("| kind | file |")}
    found["extra"] |= {word for hook, *_ in rows("| hook | when |") for word in words(hook)}
    return found | {"any": set().union(*found.values())}


TABLE = {
    words(name).pop(): (set(kinds.split(", ")), readers)
    for name, kinds, _, readers in rows("| name | kind |")
}


@pytest.mark.extended
def test_the_table_lists_what_components_declare_beside_the_methods_of_their_kind():
    methods = contract()
    found = {
        name: left
        for name, kinds in declared().items()
        if (left := {kind for kind in kinds if name not in methods.get(kind, set()) | METHODS})
    }
    assert {name: kinds for name, (kinds, _) in TABLE.items()} == found


def test_the_readers_of_a_name_read_it():
    for name, (_, readers) in TABLE.items():
        files = words_of_paths(readers)
        assert files, name
        for file in files:
            assert re.search(rf"\b{name}\b", (LIBRARY / file).read_text()), (name, file)


def words_of_paths(cell: str) -> list[str]:
    return re.findall(r"`([\w/]+\.py)`", cell)


def test_there_are_few():
    assert len(TABLE) <= MOST
