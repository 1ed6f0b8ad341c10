"""Every law explains what it checks, how it fails and what to do, on the page of the laws too."""

import ast
import inspect
import re
import sys
from collections.abc import Iterator

import pytest

from docs.settings_pages import laws
from xformer_kit.laws import LAWS, explanation
from xformer_kit.laws.kinds import KIND_LAWS
from xformer_kit.laws.registry import Explanation

LITERAL = 12  # least letters of a message that are in the source


ALL = [
    *LAWS.items(),
    *((f"{kind}: {name}", law) for kind, laws in KIND_LAWS.items() for name, law in laws.items()),
]


@pytest.mark.parametrize(("name", "law"), ALL)
def test_a_law_explains_itself(name, law):
    assert [part for part, text in explanation(law)._asdict().items() if not text] == []


def test_a_part_that_is_missing_is_empty():
    def law(config):
        """What must hold.

        Fix: what to do.
        """

    assert explanation(law) == Explanation("What must hold. Fix: what to do.", "", "")


def test_an_example_is_a_message_of_the_law():
    """Of the file of the law, whose strings have something else at each {value}."""
    wrong = []
    for name, law in ALL:
        example = explanation(law).example
        if not any(re.search(one, example) for one in messages(law.__module__)):
            wrong.append(f"{name}: {example}")
    assert wrong == []


def messages(module: str) -> Iterator[str]:
    """Patterns of the strings of a module."""
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if not isinstance(node, ast.JoinedStr | ast.Constant):
            continue
        parts = [node] if isinstance(node, ast.Constant) else node.values
        words = [part.value if isinstance(part, ast.Constant) else None for part in parts]
        if sum(len(word) for word in words if isinstance(word, str)) >= LITERAL:
            yield "".join(re.escape(word) if isinstance(word, str) else ".+?" for word in words)


def test_the_page_has_each_law_with_an_example_and_what_to_do():
    page = laws()
    for name, law in ALL:
        section = re.split(r"\n##+ ", page.partition(f"# {name}\n")[2])[0]
        assert explanation(law).example in section, name
        assert "What to do: " in section, name
