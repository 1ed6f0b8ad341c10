"""`python -m benchmarks` runs every benchmark, with flags that it has."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as every
from benchmarks.finding_pages import page
from benchmarks.findings import draw, finding
from tests.studies import placements, write

pytestmark = pytest.mark.extended

FOLDER = Path(every.__file__).parent
MODULES = sorted(
    path.stem
    for path in FOLDER.glob("*.py")
    if path.stem != "__main__" and "\ndef main(" in path.read_text()
)


def test_every_benchmark_is_run():
    assert sorted({*every.BENCHMARKS, *every.OF_A_RUN}) == MODULES
    readme = (FOLDER / "README.md").read_text()
    assert [
        name for name in MODULES if not re.search(rf"python -m benchmarks\.{name}( RUN)?`", readme)
    ] == []


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_has_the_flags_that_it_is_run_with(name, monkeypatch, capsys):
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    known = set(re.findall(r"--[a-z]+", capsys.readouterr().out))
    assert set(re.findall(r"--[a-z]+", " ".join(every.BENCHMARKS.get(name, ())))) <= known


def test_a_failed_benchmark_is_named_and_the_others_run(monkeypatch, capfd):
    broken = every.Flags("--no-such-flag", "--no-such-flag")
    monkeypatch.setattr(every, "BENCHMARKS", {"data": broken, "startup": every.Flags("", "--help")})
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick"])
    assert every.main() == 1
    out, err = capfd.readouterr()
    assert "Time until `--help`" in out
    assert err.endswith("\nfailed: data (exit code 2)\n")


def test_a_finished_study_becomes_a_page(tmp_path):
    """With the claim of findings/norm_without_warmup, whose page it is."""
    expect = {"variant": "placement=post", "is": "worse"}
    claim = {"paper": "Xiong et al., 2020, arXiv:2002.04745", "expect": expect}
    folder = write(placements(claim=claim), tmp_path)
    about = {"time": "2026-12-01", "cpu": "CPU", "cores": 2, "versions": {"torch": "2.13.0"}}
    text = page("norm_without_warmup", finding(folder) | about)
    assert "(https://arxiv.org/abs/2002.04745)" in text and "## Held" in text
    assert "- placement=post is worse than baseline by 0.0" in text
    draw(folder, tmp_path / "forest.svg")
    assert (tmp_path / "forest.svg").read_text().count("placement=post") > 0
