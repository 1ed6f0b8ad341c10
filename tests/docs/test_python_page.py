"""docs/python.md: its code runs, and its tables name what exists."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from tasks.run.start import start_run
from xformer_kit import compose
from xformer_kit.ffn import FFNS
from xformer_kit.generate import Decoding, generate

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
RUN = re.search(r'load\("(.*?)"\)', PAGE)[1]
SMALL = ("model.dim=16", "model.layers=2", "attn.heads=2", "model.vocab_size=300")
ONE_STEP = ("data.seq_len=16", "data.batch_size=2", "trainer.max_steps=1", "logger=none")


def rows(heading: str) -> list[tuple[str, str]]:
    """The cells of the first table after a heading."""
    table = PAGE[PAGE.index(f"\n## {heading}") :].split("\n| --- | --- |\n")[1].split("\n\n")[0]
    cells = (line.strip("|").split(" | ", 1) for line in table.splitlines())
    return [(one.strip(), other.strip()) for one, other in cells]


@pytest.mark.extended
def test_the_code_of_the_page_runs_in_its_order(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the cat sat on a mat and saw " * 50)
    words = ["tokenizer=byte", "data=text", "data.path=text.txt", "trainer.accelerator=cpu"]
    assert start_run(compose([*SMALL, *ONE_STEP, *words]), tmp_path / RUN) == 0
    capsys.readouterr()
    names = {"__name__": "python_page"}
    try:
        for number, source in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)):
            exec(compile(source, f"block {number} of docs/python.md", "exec"), names)
    finally:
        FFNS.forget("python_page")
    printed = capsys.readouterr().out
    assert "attn.head: attn 'multi_head' has no option 'head'. Did you mean 'heads'?" in printed
    assert names["longer"].shape == (2, 24) and Path("attention.png").is_file()


def test_the_table_of_generation_has_all_options():
    named = {name for cell, _ in rows("Generation") for name in re.findall(r"`(\w+)`", cell)}
    arguments = inspect.signature(generate).parameters.keys() - {"model", "ids", "options"}
    assert named == arguments | Decoding.__dataclass_fields__.keys()


@pytest.mark.extended
def test_the_table_of_x_transformers_composes():
    faults = {}
    for theirs, ours in rows("Coming from x-transformers"):
        for node in re.findall(r"`(\{.*\})`", ours):
            try:
                compose(ast.literal_eval(node))
            except Exception as error:
                faults[theirs] = str(error)
    assert faults == {}


def test_the_table_of_x_transformers_names_what_that_has():
    peer = pytest.importorskip("x_transformers")
    folder = Path(peer.__file__).parent
    files = ("x_transformers.py", "autoregressive_wrapper.py", "attend.py")
    text = "".join((folder / name).read_text(encoding="utf-8") for name in files)
    named = [
        name
        for cell, _ in rows("Coming from x-transformers")
        for name in re.findall(r"`(\w+)`", cell)
    ]
    missing = [
        name for name in named if not re.search(rf"\b{re.sub('^(attn|ff)_', '', name)}\b", text)
    ]
    assert missing == []
