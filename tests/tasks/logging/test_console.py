"""Values such as [attn, ffn] are printed unchanged and not interpreted as rich's markup."""

import ast
import io
from pathlib import Path

import pytest
from rich.table import Table

from tasks.cli.command import console
from tasks.logging.console import create_console

ROOT = Path(__file__).parents[3]
SOURCES = [
    path for folder in ("tasks", "xformer_kit") for path in sorted((ROOT / folder).rglob("*.py"))
]
CREATORS = [path for path in SOURCES if "Console(" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", CREATORS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_console_interprets_no_markup(path):
    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    created = [
        call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Console"
    ]
    assert created
    for call in created:
        arguments = {
            word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg == "markup"
        }
        assert arguments == {"markup": False}, (
            f"{path.name}, line {call.lineno}: Console(..., markup=False)"
        )


def test_a_list_is_printed_unchanged(capsys):
    table = Table("model.decoder.layout")
    table.add_row("[attn,attn,ffn]")
    console().print(table)
    assert "[attn,attn,ffn]" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_character_that_the_output_cannot_encode_is_replaced(encoding):
    text = "a\ud800é漢↵"
    console = create_console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    console.print(text)
    console.file.flush()
    printed = console.file.buffer.getvalue()
    assert printed == f"{text}\n".encode(encoding, "replace")
