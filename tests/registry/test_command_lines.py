"""Command lines that messages propose work when they are pasted."""

import shlex
from pathlib import Path

import pytest

from xformer_kit.config import preflight
from xformer_kit.registry import command_lines as proposed

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
        proposed.xformer("generate", "run", "--prompt", '"The "')
        == 'xformer generate run --prompt "The "'
    )
    assert (
        proposed.resume("my run", ["a.py", "/b c.py"])
        == """xformer train "components=[a.py,'/b c.py']" "resume='my run'\""""
    )


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
