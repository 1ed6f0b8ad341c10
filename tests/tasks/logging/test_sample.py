"""The generated text on the page at the end of a run."""

from io import StringIO

import pytest
from rich.console import Console

from tasks.evaluation import Sample
from tasks.logging.summary import SAMPLE_LINES, _print_sample

LINES = [f"line {i}" for i in range(SAMPLE_LINES + 3)]


@pytest.mark.parametrize(
    ("generated", "shown"),
    [
        ("one\ntwo", "one\ntwo"),
        ("one\n\n \n\n\ntwo", "one\n\ntwo"),
        ("\n".join(LINES), "\n".join([*LINES[:SAMPLE_LINES], "..."])),
    ],
)
def test_a_generated_text_is_shown_in_a_few_lines(generated, shown):
    console = Console(file=StringIO(), width=80)
    _print_sample(console, Sample("The ", generated))
    assert console.file.getvalue() == f"It wrote  The {shown}\n"
