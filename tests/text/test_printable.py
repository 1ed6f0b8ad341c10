"""Names, texts and figures of a foreign run: a terminal obeys none of them, and a spreadsheet
computes none.
"""

import csv
import io
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from tasks.logging.console import create_console
from xformer_kit.registry import config_error
from xformer_kit.study.report.csv_files import csv_text
from xformer_kit.text.printable import cell, printable, text_of

TITLE = "\x1b]0;owned\x07"  # sets the title of a terminal's window
MOVES = "a\x1b[2Jb\x9b1Ac\rd\x08e\x7f"  # clears the screen, moves up, returns, goes back, deletes


@pytest.mark.extended
@given(st.text())
def test_printable_text_has_no_control_character_and_all_else(text):
    found = printable(text)
    assert len(found) == len(text)
    assert not any((c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" for c in found)
    assert all(a == b for a, b in zip(found, text, strict=True) if b.isprintable() or b in "\n\t")


@pytest.mark.parametrize("foreign", [TITLE, MOVES])
def test_no_foreign_control_character_reaches_a_terminal(foreign):
    file = io.StringIO()
    console = create_console(
        file=file, force_terminal=True, color_system="standard", legacy_windows=False
    )
    table = Table(title=foreign)
    table.add_column(foreign)
    table.add_row(Text(foreign, "bold"), style="red")
    table.add_row(foreign)
    console.print(table, foreign, Text(foreign))
    console.print(Text.assemble((foreign, "bold")), soft_wrap=True)
    shown = file.getvalue()
    plain = shown.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[3m", "")
    plain = plain.replace("\x1b[31m", "").replace("\x1b[1;31m", "")
    assert "\x1b[1m" in shown  # the console's own codes stay
    assert printable(plain) == plain and plain.count("\ufffd") >= 6


def test_faults_have_no_control_characters():
    assert (
        str(config_error("data.name", f"no corpus is called {TITLE!s}"))
        == "data.name: no corpus is called \ufffd]0;owned\ufffd."
    )


def test_no_text_turns_the_order_in_which_a_line_is_read():
    assert (
        printable("python train.py \u202egnp.exe\u2069 שלום")
        == "python train.py \ufffdgnp.exe\ufffd שלום"
    )


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals")
@pytest.mark.parametrize("terminal", [True, False])
def test_generated_text_goes_to_a_terminal_without_control_characters_and_to_a_file_as_it_is(
    terminal,
):
    ours, theirs = os.openpty() if terminal else os.pipe()
    code = f"from tasks.cli.generate import _write; _write({TITLE!r})"
    subprocess.run([sys.executable, "-c", code], stdout=theirs, check=True)
    os.close(theirs)
    got = os.read(ours, 1000).decode()
    os.close(ours)
    assert got == (printable(TITLE) if terminal else TITLE)


FORMULAS = ["=1+1", "=HYPERLINK(0)", "+1+cmd", "-cmd", "@SUM(1)", "\t=1", "\n=1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_is_no_formula(text):
    names, values = csv.reader(io.StringIO(csv_text([{text: text, "loss": -1.5}]), newline=""))
    assert names == [f"'{text}", "loss"] and values == [f"'{text}", "-1.5"]


def test_a_carriage_return_begins_no_row():
    text = csv_text([{"name": "a\r=1\r\n=2"}])
    assert list(csv.reader(io.StringIO(text))) == [["name"], ["a\n=1\n=2"]]


@pytest.mark.extended
@given(st.text() | st.sampled_from(FORMULAS))
def test_a_cell_gives_its_text_back_and_is_made_once(text):
    assert cell(cell(text)) == cell(text)
    assert cell(text_of(cell(text))) == cell(text)


@pytest.mark.parametrize("number", [-1, 1.5, None, "-1e-3", "+2", "-inf", "nan", "2 + 2"])
def test_numbers_and_other_text_stay(number):
    assert cell(number) == number
