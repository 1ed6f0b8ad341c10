"""The guide of schedules: its picture has every schedule, and its code is that of an example."""

from pathlib import Path

import pytest

from docs.contract_page import EXAMPLES
from docs.schedules_picture import CURVES, FILE
from xformer_kit.optim import SCHEDULES

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "schedules.md"


def test_every_schedule_is_drawn_and_in_the_table():
    assert set(CURVES) == set(SCHEDULES)
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in SCHEDULES if f"| `{name}` |" not in page] == []
    assert f"(../static/{FILE.name})" in page


def test_the_schedule_of_the_guide_is_that_of_the_examples():
    code = PAGE.read_text(encoding="utf-8").partition("```python")[2].partition("```")[0]
    shown = [line for line in code.splitlines() if "def " in line or "return " in line]
    example = (EXAMPLES / "step_decay.py").read_text(encoding="utf-8")
    assert shown and [line for line in shown if line not in example] == []


def test_the_picture_is_that_of_the_code(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    from docs.schedules_picture import save

    save(tmp_path / "drawn.png")
    drawn, saved = image.imread(tmp_path / "drawn.png"), image.imread(FILE)
    assert drawn.shape == saved.shape
    assert abs(drawn - saved).mean() < 0.01  # fonts may differ
