"""The generated text on the page at the end of a run."""

from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from tasks.logging.summary import _print_sample
from tasks.modules.evaluation import Sample

# Line breaks of every kind, control, private and unassigned code points, and wide characters.
CHARACTERS = "ab \n\r\t\x0b\x1b\x85\u2028\u202e\ufffd\ue000\U000e0fff漢é"


def shown(sample, width=80):
    console = Console(file=StringIO(), width=width)
    _print_sample(console, sample)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("prompt", "generated", "expected"),
    [
        ("The ", "one\n\n \ntwo\x1b[2J\ttab", "It wrote  The one↵two\ufffd[2J tab\n"),
        ("a" * 50, "b" * 90, f"It wrote  …{'a' * 20}{'b' * 48}…\n"),
        ("", "", "It wrote  \n"),
    ],
)
def test_a_continuation_is_one_line_after_the_end_of_its_prompt(prompt, generated, expected):
    assert shown(Sample(prompt, generated)) == expected


def test_an_answer_is_compared_with_the_right_one_if_they_differ():
    assert shown(Sample("1 2", "3", "3")) == "Given     1 2\nIt wrote  3\n"
    assert shown(Sample("1\n2", "4", "3")) == "Given     1↵2\nIt wrote  4\nRight is  3\n"


@pytest.mark.parametrize("width", [20, 80, 120])
@pytest.mark.parametrize("expected", ["", "right"])
def test_no_text_wraps_or_breaks_a_line(width, expected):
    """Every text of two of the characters, repeated."""
    for text in (20 * (a + b) for a in CHARACTERS for b in CHARACTERS):
        lines = shown(Sample(text, text, expected), width).split("\n")
        assert len(lines) == (4 if expected else 2) and lines.pop() == ""
        assert all(cell_len(line) <= width for line in lines)
        assert all(c.isprintable() for line in lines for c in line), lines
