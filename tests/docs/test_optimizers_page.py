"""The guide of optimizers: it has each of them, and its code is that of an example."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.measure import RESULTS
from benchmarks.mup_transfer import PAGE as PICTURE
from benchmarks.mup_transfer import best, curve, draw
from docs.contract_page import EXAMPLES
from xformer_kit.optim import OPTIMIZERS, create_optimizer
from xformer_kit.tensors import hidden

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "optimizers.md"
TEXT = PAGE.read_text(encoding="utf-8")
OUT, INTO = 256, 512
ROWS = {
    line.split("`")[1]: [cell.strip() for cell in line.split("|")[2:4]]
    for line in TEXT.splitlines()
    if line.startswith("| `") and "](http" in line
}
LIBRARIES = {"soap": "pytorch_optimizer", "schedule_free": "schedulefree"}


def test_every_optimizer_is_in_the_table():
    assert set(ROWS) == set(OPTIMIZERS)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_state_and_rate_are_those_of_the_table(name):
    """The state of a matrix after a step, without what does not grow with it."""
    if name == "adamw_8bit":
        pytest.skip("compiles its step; its numbers are those of AdamW")
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    model = torch.nn.Linear(INTO, OUT, bias=False)
    model.parameter_info = {"weight": hidden("width", "dim")}
    optimizer = create_optimizer({"name": name}, model)
    for _ in range(2):
        model.weight.grad = torch.randn(OUT, INTO)
        optimizer.step()
    (state,) = optimizer.state_dict()["state"].values()
    values = [
        v for value in state.values() for v in (value if isinstance(value, list) else [value])
    ]
    numbers = sum(v.numel() for v in values if torch.is_tensor(v) and v.numel() > 1)
    formula = {
        "2 out in": 2 * OUT * INTO,
        "out in": OUT * INTO,
        "out + in": OUT + INTO,
        "2 out in + 2 out^2 + 2 in^2": 2 * (OUT * INTO + OUT**2 + INTO**2),
    }
    stated, rate = ROWS[name]
    assert numbers == formula[stated.split(";")[0]]
    assert float(rate.split(";")[0].split(",")[0]) == optimizer.param_groups[0]["lr"]


def test_the_optimizer_of_the_guide_is_that_of_the_examples():
    code = TEXT.partition("```python")[2].partition("```")[0]
    example = (EXAMPLES / "nesterov.py").read_text(encoding="utf-8")
    shown = [line for line in code.splitlines() if "class " in line or "super()" in line]
    assert len(shown) == 2 and [line for line in shown if line not in example] == []


def test_the_table_and_the_picture_of_the_transfer_are_those_of_the_saved_figures(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    figures = json.loads((RESULTS / "mup_transfer.json").read_text())["figures"]
    narrow, *wide = sorted({run["dim"] for run in figures})
    at = best(figures, "standard", narrow)
    for name, words in (("standard", "standard"), ("mup", "muP with base_dim=32")):
        rates = [best(figures, name, dim) for dim in (narrow, *wide)]
        losses = [
            curve(figures, name, dim)[rate]
            for dim, rate in zip((narrow, *wide), rates, strict=True)
        ]
        kept = [curve(figures, name, dim)[at] for dim in (narrow, *wide)]
        assert f"| best rate, {words} | " + " | ".join(f"{rate:g}" for rate in rates) in TEXT
        for row in (losses, kept):
            assert " | ".join(f"{loss:.3f}" for loss in row) in TEXT
    draw(figures, tmp_path / "drawn.png")
    drawn, saved = image.imread(tmp_path / "drawn.png"), image.imread(PICTURE)
    assert drawn.shape == saved.shape
    assert abs(drawn - saved).mean() < 0.01  # fonts may differ
