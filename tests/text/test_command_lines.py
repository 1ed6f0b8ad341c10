"""Command lines that messages propose work when they are pasted."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from xformer_kit.config import preflight
from xformer_kit.text import command_lines as proposed

QUOTERS = ("shlex.quote", "shlex.join")
PROPOSAL = re.compile(
    r"(Try|Use|with|Go on|:) `?(python \S*train\.py|xformer (?:train|plot|evaluate|generate|study"
    r"|status|report|describe|components|compare|diff|find-\w+))\b"
)
NAMES = [
    "plain",
    "with blanks",
    "it's",
    "a,b",
    "x(1)",
    "[y]",
    "a=b",
    "12",
    "1e5",
    "null",
    "$HOME",
    "a;b",
    'q"x',
    "a\\b",
    "ü",
    "`ls`",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_line_is_read_as_it_was_meant(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(f"{name}.py").touch()
    words = shlex.split(proposed.resume(name, [tmp_path / f"{name}.py"]))
    assert words[:2] == ["xformer", "train"]
    line = preflight(words[2:])
    assert (line.resume, line.components) == (name, (f"{name}.py",))
    words = shlex.split(proposed.xformer("evaluate", name, components=[f"{name}.py"]))
    assert words == ["xformer", "evaluate", name, "--components", f"{name}.py"]


def test_the_program_is_what_can_be_typed_in_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(proposed.CHECKOUT)
    assert proposed.train("a=1") == "python train.py a=1"
    assert proposed.program(tmp_path) == "xformer train"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()  # of somebody else
    assert proposed.train("a=1") == "xformer train a=1"
    assert proposed.program(proposed.CHECKOUT) == "python train.py"
    monkeypatch.setattr(proposed, "CHECKOUT", Path("site-packages").absolute())
    assert proposed.program("site-packages") == "xformer train"


def test_a_plain_line_has_no_quotes_and_no_components_that_were_not_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        proposed.resume("outputs/decoder/2026-11-20_12-00-00")
        == "xformer train resume=outputs/decoder/2026-11-20_12-00-00"
    )
    assert (
        proposed.xformer("generate", "run", "--prompt", "The ")
        == "xformer generate run --prompt 'The '"
    )
    assert (
        proposed.resume("my run", ["a.py", "/b c.py"])
        == """xformer train "components=[a.py,'/b c.py']" "resume='my run'\""""
    )


def test_only_one_module_quotes_words_and_names_the_programs():
    """Any other command line in an f-string is one that is not quoted, or has no components."""
    builder = Path(proposed.__file__)
    wrong = [
        f"{file.name}:{node.lineno}"
        for top in ("tasks", "xformer_kit")
        for file in (proposed.CHECKOUT / top).rglob("*.py")
        if file != builder
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in QUOTERS)
        or (isinstance(node, ast.Call) and _proposes_by_hand(node))
    ]
    assert not wrong


def _proposes_by_hand(call: ast.Call) -> bool:
    """Whether an argument of a message or a fault is a text with a command line of this project."""
    if ast.unparse(call.func) not in ("print", "print_wrapped", "config_error", "Fault"):
        return False
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    texts = [
        node.value
        for argument in arguments
        for node in ast.walk(argument)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return any(PROPOSAL.search(text) for text in texts)


def test_a_file_is_named_from_here_and_a_link_by_its_own_name(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "second.py").touch()
    (tmp_path / "mine.py").symlink_to(tmp_path / "there" / "second.py")
    monkeypatch.chdir(tmp_path)
    assert proposed.xformer("evaluate", "r", components=[tmp_path / "mine.py"]).endswith(
        "--components mine.py"
    )
    monkeypatch.chdir(tmp_path / "there")
    assert proposed.xformer("evaluate", "r", components=["../mine.py"]).endswith(
        f"--components {tmp_path}/mine.py"
    )
