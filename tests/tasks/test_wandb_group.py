"""A study on W&B, offline: runs have their group, and the report is a run with tables, figures and
the page.
"""

import csv
import json
from dataclasses import replace

import pytest
from studies import factorial, write

from tasks.process.job import Job
from tasks.run import start
from tasks.run.start import start_or_resume_run
from tasks.study import wandb_group
from tasks.study.report import write_report
from tests.tasks.wandb_records import finished_records
from xformer_kit.config import compose, config_yaml, read_config
from xformer_kit.study.plan import StudyRun, Variant
from xformer_kit.study.report.sections import document
from xformer_kit.study.run_key import run_key

NODE = {
    "name": "placement",
    "design": {"name": "factorial"},
    "claim": {
        "paper": "Xiong et al., 2020, arXiv:2002.04745",
        "expect": {"variant": "placement=post", "is": "worse"},
    },
    "log_report": True,
}
LOGGER = {
    "name": "wandb",
    "project": "p",
    "entity": None,
    "group": None,
    "job_type": None,
    "tags": None,
}


def a_run(**logger) -> StudyRun:
    variant = Variant(
        "a", "placement=post, norm=layer", {}, (), {"logger": LOGGER | logger, "seed": 0}
    )
    return StudyRun(variant, 3, "")


def logger_of(**options):
    run = a_run(**options)
    return wandb_group.with_logger_options(NODE, run, run.config)["logger"]


def test_default_group_job_type_and_tags():
    defaults = {
        "group": "placement",
        "job_type": "placement=post, norm=layer",
        "tags": ["factorial", "claim", "arXiv:2002.04745", "seed=3"],
    }
    assert logger_of() == LOGGER | defaults
    own = {"group": "mine", "tags": ["x"]}
    assert logger_of(**own) == LOGGER | defaults | own
    assert logger_of(name="none") == LOGGER | {"name": "none"}
    run, several = a_run(), {"wandb": {"entity": "us"}, "csv": {}}
    changed = wandb_group.with_logger_options(NODE, run, run.config | {"logger": several})["logger"]
    assert changed["csv"] == {} and defaults.items() <= changed["wandb"].items()
    assert (changed["wandb"]["entity"], several["wandb"]) == ("us", {"entity": "us"})
    assert run_key(a_run().config, "data") == run_key(
        a_run(group="mine", job_type="b", name="none").config, "data"
    )


def test_a_resumed_run_keeps_its_logger(tmp_path, monkeypatch):
    """Another study, with another group, resumes an interrupted run."""
    begun, gone_on = compose(["logger=none"]) | {"logger": LOGGER}, []
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    (tmp_path / "config.yaml").write_text(config_yaml(begun))
    monkeypatch.setattr(
        start,
        "train_in_processes",
        lambda config, job: gone_on.append((config, job)),
    )
    job = Job(tmp_path, quiet=True)
    start_or_resume_run(begun | {"logger": LOGGER | {"group": "other"}}, job)
    assert gone_on == [(read_config(tmp_path), job)] and gone_on[0][0]["logger"] == LOGGER


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """(folder, results, content) of a study whose report was logged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        whole = factorial()
        few = replace(
            whole, outcomes=[replace(one, curves={}) for one in whole.outcomes]
        )  # curves take long to draw
        folder = write(few, tmp_path_factory.mktemp("logged"))
        found, report = write_report(folder)
        wandb_group.publish(NODE, LOGGER, found, report)
    return folder, found, report


def test_the_report_is_a_run_of_the_group(logged):
    folder, _, report = logged
    (place,) = (folder / "wandb").glob("offline-run-*")
    every = finished_records(folder)
    about = next(r.run for r in every if r.WhichOneof("record_type") == "run")
    assert (about.run_group, about.job_type) == ("placement", "report")
    assert sorted(about.tags) == ["arXiv:2002.04745", "claim", "factorial"]
    updates = [
        u for r in every if r.WhichOneof("record_type") == "summary" for u in r.summary.update
    ]
    assert json.dumps(report.sentence) in [u.value_json for u in updates if u.key == "answer"]
    media = place / "files" / "media"
    tables = {
        p.name.split("_0_")[0]: json.loads(p.read_text()) for p in media.rglob("*.table.json")
    }
    assert tables.keys() == {"variants", "runs", "main effects", "interactions"}
    for name in ("variants", "runs"):
        with open(folder / f"{name}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        columns = [c for c in tables[name]["columns"] if c != "wandb"]
        shown = [
            dict(zip(tables[name]["columns"], row, strict=True)) for row in tables[name]["data"]
        ]
        assert [[row[c] for c in columns] for row in rows] == [
            ["" if row[c] is None else str(row[c]) for c in columns] for row in shown
        ]
    drawn = sorted(path.name.split("_0_")[0] for path in media.rglob("*.png"))
    assert drawn == sorted(picture.name.replace("/", " ") for picture in document(report).figures)
    (page,) = media.rglob("*.html")
    assert page.read_text() == (folder / "report.html").read_text()


def test_a_report_is_logged_once_for_each_content(logged, monkeypatch, capsys):
    _, found, report = logged
    asked = []

    def begun(node, folder, **more):
        asked.append(more["id"])
        raise OSError("no network")

    monkeypatch.setattr(wandb_group, "start_wandb_run", begun)
    wandb_group.publish(NODE, LOGGER, found, report)
    wandb_group.publish(NODE | {"log_report": False}, LOGGER | {"project": "q"}, found, report)
    wandb_group.publish(NODE, LOGGER | {"name": "csv", "project": "q"}, found, report)
    assert asked == [] and capsys.readouterr().err == ""
    for _ in range(2):  # what failed is tried again
        wandb_group.publish(NODE, LOGGER | {"project": "q"}, found, report)
    assert len(asked) == 2 and len(set(asked)) == 1
    assert capsys.readouterr().err.count("could not be logged to W&B (OSError: no network)") == 2
