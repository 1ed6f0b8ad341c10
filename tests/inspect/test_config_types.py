"""The types of a config in Python are those of the registries, and a type checker reads them."""

import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from xformer_kit.config import GROUPS
from xformer_kit.inspect.config_types import FOLDER, files
from xformer_kit.typed import Config

ROOT = Path(__file__).parents[2]
WRONG = """
from xformer_kit.typed import Config

right: Config = {"attn": {"heads": 8, "gate": {"name": "head"}}, "model": {"decoder": {}}}
option: Config = {"attn": {"head": 8}}
name: Config = {"position": "rotery"}
value: Config = {"model": {"dim": "512"}}
nested: Config = {"attn": {"score": {"softcapp": 1.0}}}
top: Config = {"atn": {"heads": 8}}
variant: Config = {"model": {"decoder": {"variants": {"local": {"mask": {"windows": 8}}}}}}
"""


def test_the_types_are_up_to_date():
    written = {name: (FOLDER / name).read_text(encoding="utf-8") for name in files()}
    assert files() == written, "run: python -m xformer_kit.inspect.table"


def test_the_types_are_python():
    keys = get_type_hints(Config).keys()
    assert GROUPS.keys() | {"model", "trainer", "extra", "seed"} <= keys


@pytest.mark.extended
def test_a_type_checker_accepts_ten_models_and_rejects_misspelt_ones(tmp_path):
    pytest.importorskip("mypy")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    arguments = ["--config-file=", f"--cache-dir={tmp_path}", "--follow-imports=skip"]
    models = ROOT / "tests/python_configs.py"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments, wrong, models, *FOLDER.glob("*.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = [line.split(": ")[0] for line in done.stdout.splitlines() if ": error: " in line]
    lines = [f"{wrong}:{at}" for at in range(5, 11)]
    assert [line.replace("\\", "/") for line in found] == lines, done.stdout + done.stderr
