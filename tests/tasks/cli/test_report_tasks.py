"""xformer report STUDY --tasks: a study by the scores of its runs."""

import json
import shutil
from pathlib import Path

import pytest

from tasks.evaluation.stored import is_of, scored, store
from tasks.study import collect
from tests.studies import changed, ladder, placements, study, variant, write
from tests.studies import finished as ended
from tests.tasks.cli.local_task import needs_lm_eval
from tests.tasks.command_lines import fault, output
from xformer_kit import ConfigError
from xformer_kit.study.report.content import content

pytestmark = pytest.mark.extended
ITEMS = 10


@pytest.fixture
def found(tmp_path):
    """The results of a study in which post has 2 of 10 items fewer right than the others."""
    claim = {"paper": "one", "expect": {"variant": "placement=post", "is": "worse"}}
    study = collect.results(write(placements(claim=claim, margin=0.1), tmp_path))
    for one in study.outcomes:
        if one.status == "finished":
            right = 7 + one.seed % 3 - 2 * (one.variant == 1)
            score = {"value": right / ITEMS, "higher_is_better": True}
            nats = {"value": 4.5, "higher_is_better": False}
            store(Path(one.directory), {"task": "T", "metrics": {"acc": score, "nats": nats}})
    return study


def test_variants_are_compared_by_the_score_of_a_task(found):
    said = content(scored(found, "T"))
    assert (said.metric.name, said.metric.higher_is_better) == ("T/acc", True)
    post = said.variants[1].verdict.difference
    assert post.mean == pytest.approx(-0.2) and "placement=post is worse" in said.sentences[1]
    assert [one.metric.name for one in said.secondary] == ["val/loss"]
    assert said.claim is None and said.margin is None  # which are about the loss


def test_a_score_has_its_direction_and_unfinished_runs_have_none(found):
    other = scored(found, "T", "nats")
    assert not content(other).metric.higher_is_better
    without = {one.status for one in other.outcomes if "T/nats" not in one.facts}
    assert without == {"diverged"}


def test_scores_of_other_items_are_none(found):
    run = Path(found.outcomes[0].directory)
    assert not is_of(run, "T", "a") and not is_of(run, "S", "a")
    store(run, {"task": "T", "metrics": {}, "asked": "a"})
    assert is_of(run, "T", "a") and not is_of(run, "T", "b")


def test_a_score_that_a_task_has_not_is_one_sentence(found):
    with pytest.raises(ConfigError, match=r"^--metric: 'T' has no score 'f1'\. It has: acc, nats"):
        scored(found, "T", "f1")
    with pytest.raises(ConfigError, match=r"has no results of 'S'\. It has: T\. Or: .+ evaluate "):
        scored(found, "S")


def test_studies_and_options_without_scores_are_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(ladder(), Path("outputs"))
    words = ["report", "placement"]
    assert fault(capsys, *words, "--metric", "acc") == (
        "--metric: has no effect without --tasks. Leave it out."
    )
    assert fault(capsys, *words, "--tasks", "T") == (
        "--tasks: is for studies that compare variants, not for the laws of a ladder. Leave it out."
    )
    assert fault(capsys, *words, "--tasks", "T", "--limit", 0).startswith("--limit: must be")
    (found,) = Path("outputs/studies").iterdir()
    plan = json.loads((found / "plan.json").read_text())
    plan["study"]["design"]["name"] = "one_at_a_time"
    other = plan | {"study": plan["study"] | {"command": "python train.py"}}
    (found / "plan.json").write_text(json.dumps(other))
    assert fault(capsys, *words, "--tasks", "T") == (
        "--tasks: is for runs that were trained here, not for those of study.command. Leave it out."
    )
    (found / "plan.json").write_text(json.dumps(plan | {"runs": []}))
    assert fault(capsys, *words, "--tasks", "T") == (
        "--tasks: no run of the study has finished. Finish it first."
    )


@needs_lm_eval
def test_runs_are_evaluated_once(capsys, tmp_path, monkeypatch, finished, task):
    """Copies of one run: there is no difference."""
    monkeypatch.chdir(tmp_path)
    known = [variant(), changed("placement", "post")]
    whole = study(known, [ended(i, seed, 3.0) for i in range(2) for seed in range(2)])
    folder = write(whole, Path("outputs"))
    for one in collect.results(folder).outcomes:
        shutil.rmtree(one.directory)
        shutil.copytree(finished, one.directory)
    words = ["report", "placement", "--tasks", task, "--json"]
    code, out, err = output(capsys, *words)
    answer = json.loads(out)["tasks"]["letters"]
    assert (code, answer["metric"], err.count("run ")) == (0, "letters/acc", 4)
    assert "no significant difference" in answer["answer"]
    assert "letters/acc" in Path(answer["folder"], "report.html").read_text()
    assert "run " not in output(capsys, *words)[2]
    task.write_text(task.read_text() + "# another\n")
    assert output(capsys, *words)[2].count("run ") == 4
