"""Forecasts of a ladder: what is foretold, that it is written once before the larger runs, and that
a change of it is seen.
"""

import json
from dataclasses import replace

import pytest

from benchmarks.finding_pages import page
from benchmarks.findings import draw, finding
from tasks.study import forecast as writer
from tasks.study import sweep
from tasks.study.collect import results
from tests.studies import LAW, ended, ladder, ladder_law, write
from xformer_kit.registry import ConfigError
from xformer_kit.study import study_node
from xformer_kit.study.forecast import FILE, digest, foretold
from xformer_kit.study.report.content import content

pytestmark = pytest.mark.extended
TOP = "model.dim=256 x20"


class Plan:
    """What the writer reads of a plan."""

    def __init__(self, folder, found):
        self.folder, self.node = folder, found.study
        self.runs = [one for one in found.outcomes if one.variant in foretold(found.variants)]

    def directory(self, run):
        return self.folder.parent.parent / "runs" / run.key


def without_largest(found):
    indices = foretold(found.variants)
    return replace(
        found,
        outcomes=[
            ended(o.variant, o.seed, "open") if o.variant in indices else o for o in found.outcomes
        ],
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The directory of a ladder whose largest size is foretold and then trained."""
    root = tmp_path_factory.mktemp("ladder")
    whole = ladder(forecast=True, claim={"paper": "Hoffmann et al., 2022, arXiv:2203.15556"})
    folder = write(without_largest(whole), root)
    plan = Plan(folder, whole)
    writer.write(plan, plan.runs)
    first = (folder / FILE).read_text()
    write_largest(whole, root)
    writer.write(plan, plan.runs)
    assert (folder / FILE).read_text() == first  # once
    return folder


def write_largest(whole, root):
    import shutil

    kept = (root / "studies" / whole.study["name"] / FILE).read_text()
    shutil.rmtree(root / "studies")
    shutil.rmtree(root / "runs")
    (write(whole, root) / FILE).write_text(kept)


def test_the_largest_size_is_foretold():
    found = ladder()
    names = {found.variants[i]["rung"]["name"] for i in foretold(found.variants)}
    assert names == {"model.dim=256 x5", "model.dim=256 x10", TOP}
    assert len(foretold(found.variants)) == 6  # of both variants


def test_the_forecast_is_that_of_the_known_law(written):
    """Losses have an error of 0.2 %, and the forecast is a mean."""
    found = content(results(written)).forecast
    assert not found.why_not and found.ahead == pytest.approx((256 / 192) ** 4, rel=0.1)
    for row in found.rows:
        gain = 1.3 if row.name.startswith("attn=linear") else 1.0
        params = 12 * 4 * 256**2 + 256 * 256
        truth = ladder_law(params, float(row.name.rpartition("x")[2]) * params, gain)
        reach = row.forecast.high - row.forecast.low
        assert row.forecast.low - reach < truth < row.forecast.high + reach
        assert abs(row.error) < 0.01 and row.forecast.mean > LAW["E"]


def test_the_answer_has_the_forecast_of_the_baseline_and_its_error(written):
    found = content(results(written))
    assert found.sentence.startswith(f"Foretold for baseline {TOP}: ")
    assert ", an error of 0." in found.sentence


def test_a_forecast_becomes_a_page(written):
    about = {"time": "2026-12-01", "cpu": "CPU", "cores": 2, "versions": {"torch": "2.13.0"}}
    text = page("foretold_loss", finding(written) | about)
    assert "## Foretold with an error of 0." in text and "arXiv:2203.15556" in text
    draw(written, written / "laws.svg")
    assert "tokens per parameter" in (written / "laws.svg").read_text()


def test_a_changed_forecast_is_seen(written):
    path = written / FILE
    kept = json.loads(path.read_text())
    assert digest(kept) == kept["sha256"]
    changed = json.loads(path.read_text())
    changed["predictions"][f"baseline {TOP}"] |= {"mean": 0.1, "low": "x"}
    try:
        path.write_text(json.dumps(changed))
        found = content(results(written))
        assert found.sentence.startswith("There is no forecast: forecast.json was changed")
        assert not found.forecast.rows
    finally:
        path.write_text(json.dumps(kept, indent=2) + "\n")


def test_a_forecast_of_another_ladder_is_kept_under_another_name(tmp_path):
    """The largest size of the study is now another, which has not begun."""
    whole = ladder(forecast=True)
    open_ = without_largest(whole)
    folder = write(open_, tmp_path)
    old = {"time": "2026-01-01", "predictions": {"baseline model.dim=64 x5": {}}}
    old["sha256"] = digest(old)
    (folder / FILE).write_text(json.dumps(old))
    found = content(results(folder))
    assert found.sentence.startswith("There is no forecast: forecast.json is of a ladder with")
    plan = Plan(folder, whole)
    writer.write(plan, plan.runs)
    assert json.loads((folder / f"forecast_{old['sha256'][:8]}.json").read_text()) == old
    assert content(results(folder)).forecast.rows


def test_no_forecast_is_written_after_the_larger_runs_have_begun(tmp_path, capsys):
    whole = ladder(forecast=True)
    plan = Plan(write(whole, tmp_path), whole)
    writer.write(plan, plan.runs)
    assert not (plan.folder / FILE).exists()
    assert "runs of the largest size have begun already" in capsys.readouterr().err
    assert content(results(plan.folder)).forecast is None


def test_a_damaged_forecast_is_a_sentence(tmp_path):
    folder = write(ladder(forecast=True), tmp_path)
    (folder / FILE).write_text('{"time": 3}')
    with pytest.raises(ConfigError, match=rf"{FILE}: must have sha256, predictions.* Restore it"):
        results(folder)


def test_only_a_ladder_is_foretold():
    node = {"factors": {"placement": ["post"]}, "baseline": {"placement": "pre"}, "forecast": True}
    (fault,) = study_node.faults(node)
    assert str(fault).startswith("study.forecast: extrapolates a scaling law")


def test_the_largest_size_is_launched_after_its_forecast(monkeypatch):
    """A run that a signal stops ends the study without a forecast."""
    found, codes = [], [0, 0, 130]
    monkeypatch.setattr(writer, "split", lambda plan: (["small"], ["large"]))
    monkeypatch.setattr(writer, "write", lambda plan, larger: found.append(("forecast", larger)))
    monkeypatch.setattr(sweep, "launch", lambda plan, *_: found.append(plan) or codes.pop(0))
    every = ["small", "large"]
    assert sweep.launch_foretold(every, None, [], False, None) == 0
    assert found == [["small"], ("forecast", ["large"]), every]
    found.clear()
    assert sweep.launch_foretold(every, None, [], False, None) == 130 and found == [["small"]]
