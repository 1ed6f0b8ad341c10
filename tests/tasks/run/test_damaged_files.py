"""Files of a run or a study that are damaged or are something else: one sentence, and a study does
without that run.
"""

import json
import math
import os
import shutil
from contextlib import suppress

import pytest

from tasks.logging import summary
from tasks.run.new_directory import LOCK
from tasks.run.resume import resume_run
from tasks.study.collect import results
from tasks.study.progress import progress
from tests.tasks.command_lines import fault, output
from tests.tasks.test_study_commands import data, home, pool  # noqa: F401
from xformer_kit.files.saved_files import read_object
from xformer_kit.registry import ConfigError
from xformer_kit.study import stop
from xformer_kit.study.report.content import content

pytestmark = pytest.mark.extended

NO_OBJECT = {
    "cut": b'{"steps": 5',
    "other bytes": b"\xff\xfe\x00",
    "a list": b"[1, 2]",
    "nested": b"[" * 100_000,
    "a long number": b'{"steps": ' + b"9" * 5000 + b"}",
    "half a pair": b'{"steps": 5, "run": "\\ud800"}',
}
PLAN = "outputs/studies/norm_placement/plan.json"


@pytest.mark.parametrize("content", NO_OBJECT.values(), ids=NO_OBJECT)
def test_a_file_that_is_no_json_object_is_one_message(tmp_path, content):
    path = tmp_path / "summary.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_object(path, {})
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    assert summary.read(tmp_path) is None


@pytest.mark.parametrize(
    "fact",
    [{"steps": "5"}, {"val/loss": "low"}, {"versions": []}, {"params": None}, {"stopped": 3}],
)
def test_a_summary_of_other_types_is_none(tmp_path, fact):
    facts = {"steps": 5, "val/loss": 2.5, "versions": {}, "params": 3, "stopped": None}
    for found, wanted in ((facts, facts), (facts | fact, None)):
        (tmp_path / "summary.json").write_text(json.dumps(found))
        assert summary.read(tmp_path) == wanted


@pytest.mark.parametrize("file", ["summary.json", "ended.json", "metrics.csv"])
@pytest.mark.parametrize(
    "content", [*NO_OBJECT.values(), b"step,val/loss\n1,low\n"], ids=[*NO_OBJECT, "no number"]
)
def test_a_study_with_a_damaged_run_has_a_report(capsys, home, pool, file, content):  # noqa: F811
    """One that can be finished again counts as stopped, one whose records cannot be read as failed,
    for that reason.
    """
    run = pool["placement=post", 1]
    (run / file).write_bytes(content)
    found = data(capsys, "report", "norm_placement")
    page = (home / "outputs/studies/norm_placement/report.md").read_text()
    unread = file == "metrics.csv" and content in (
        NO_OBJECT["other bytes"],
        b"step,val/loss\n1,low\n",
    )
    whole = file != "summary.json" and not unread
    assert (found["finished"], found["runs"]) == (4 if whole else 3, 4)
    assert (f"{run.name}/metrics.csv" in page) == unread
    assert output(capsys, "status", "norm_placement")[0] == 0


@pytest.mark.parametrize(
    "change",
    [
        {"runs": [3]},
        {"runs": None},
        {"variants": {}},
        {"variants": [{}]},
        {"pool": 3},
        {"study": []},
        {"search": "x"},
    ],
    ids=str,
)
@pytest.mark.parametrize("word", ["report", "status"])
def test_plan_values_of_other_types_are_one_message(capsys, home, word, change):  # noqa: F811
    plan = json.loads((home / PLAN).read_text())
    (home / PLAN).write_text(json.dumps(plan | change))
    assert fault(capsys, word, "norm_placement").endswith(
        "Start the study again; its runs are kept."
    )


def test_status_and_report_agree_on_damaged_figures(capsys, home, pool):  # noqa: F811
    """Status prints the cause. It is not run again, for it is whole apart from that: its file is
    brought back or removed.
    """
    run = pool["placement=post", 1]
    (run / "metrics.csv").write_bytes(b"\xff\xfe\x00")
    _, report, _ = output(capsys, "report", "norm_placement")
    _, status, _ = output(capsys, "status", "norm_placement")
    assert "1 of 4 runs have not finished (1 failed)" in report
    assert "3 of 4 runs finished" in status
    assert (
        "placement=post seed 1: failed: " in status
        and f"{run.name}/metrics.csv: cannot be read: " in status
    )
    assert (
        "study.retry=true" not in status
        and data(capsys, "status", "norm_placement")["counts"]["failed"] == 1
    )


def paths(node, path=()):
    """Every value of an object, by its path."""
    items = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for key, value in items:
        yield (*path, key)
        yield from paths(value, (*path, key))


@pytest.mark.parametrize(
    "change",
    [
        {"command": [None]},
        {"command": [3]},
        {"components": [None]},
        {"pool": "\0"},
        {"variants": []},
        {"search": {"trials": 3}},
        {"search": []},
    ],
    ids=str,
)
@pytest.mark.parametrize("word", ["report", "status"])
def test_an_invalid_value_of_a_plan_is_one_message_with_its_path(
    capsys,
    home,  # noqa: F811
    word,
    change,
):
    plan = json.loads((home / PLAN).read_text())
    (home / PLAN).write_text(json.dumps(plan | change))
    found = fault(capsys, word, "norm_placement")
    assert found.startswith(f"{PLAN}: {next(iter(change))}") and " must " in found
    assert found.endswith(" Start the study again; its runs are kept.")


@pytest.mark.parametrize("value", [None, -1, "\0", [None], {"a": None}, math.nan], ids=repr)
def test_no_value_of_a_plan_gives_a_traceback(capsys, home, value):  # noqa: F811
    """Each is a sentence, or makes no difference."""
    plan, folder = json.loads((home / PLAN).read_text()), home / PLAN.rpartition("/")[0]
    kept = [
        path for path in paths(plan) if path[:2] not in (("study", "factors"), ("study", "only"))
    ]
    for path in kept:
        changed = json.loads(json.dumps(plan))
        node = changed
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value
        (home / PLAN).write_text(json.dumps(changed))
        with suppress(ConfigError):
            content(stop.apply_stopping_rule(results(folder)))
        with suppress(ConfigError):
            progress(folder)


@pytest.mark.parametrize("content", NO_OBJECT.values(), ids=NO_OBJECT)
def test_damaged_components_json_is_one_message(capsys, pool, content):  # noqa: F811
    run, other = pool["baseline", 0], pool["placement=post", 0]
    (run / "components.json").write_bytes(content)
    for words in (["compare", run, other], ["describe", run], ["generate", run, "--prompt", "x"]):
        assert "components.json: " in fault(capsys, *words)


def test_step_times_that_cannot_be_read_are_measured_again(home):  # noqa: F811
    from tasks.study.timing import FILE, StepClock

    (home / FILE).write_text('{"a": 0.5, "b": -1.0, "c": "x"}')
    assert StepClock(home, float).known == {"a": 0.5}
    (home / FILE).write_bytes(b"[" * 100_000)
    assert StepClock(home, float).known == {}


def test_a_summary_that_lacks_what_reproduce_compares_is_one_message(capsys, pool):  # noqa: F811
    run = pool["baseline", 0]
    (run / "summary.json").write_text('{"steps": 5}')
    assert (
        "summary.json: has no config_hash, data_fingerprint, versions, components, code, devices."
        in fault(capsys, "reproduce", run)
    )
    shutil.rmtree(run)


@pytest.mark.parametrize(
    "name",
    [
        "summary.json",
        "ended.json",
        "metrics.csv",
        "speed.csv",
        "samples.csv",
        "norms.csv",
        "train.log",
        "tokenizer.json",
    ]
    + ["checkpoints/last.ckpt", "checkpoints/previous.ckpt", "checkpoints/best.ckpt"],
)
def test_a_directory_in_place_of_a_runs_file_is_one_message(begin, capsys, name):
    code, folder = begin("run", "trainer.max_steps=2", "trainer.checkpoint_every=1")
    assert code == 0
    (folder / "summary.json").unlink()
    (folder / name).unlink(missing_ok=True)
    (folder / name / "mine").mkdir(parents=True)
    capsys.readouterr()
    assert resume_run(folder) == 2
    err = capsys.readouterr().err
    assert (
        err == f"{folder / name}: must be a file, which the run rewrites; got a directory. Move it"
        " away.\n"
    )
    assert (folder / name / "mine").is_dir()


@pytest.mark.parametrize("name", ["last", "previous", "best"])
def test_a_checkpoint_that_is_a_link_is_refused(begin, capsys, name):
    """A link that is renamed to previous.ckpt would lead to the newest checkpoint, and no good one
    would be left of before.
    """
    _, folder = begin("run", "trainer.max_steps=2", "trainer.checkpoint_every=1")
    checkpoints = folder / "checkpoints"
    path = checkpoints / f"{name}.ckpt"
    path.rename(checkpoints / "step_2.ckpt")
    path.symlink_to("step_2.ckpt")
    before = {at.name: at.read_bytes() for at in checkpoints.iterdir()}
    capsys.readouterr()
    assert resume_run(folder, max_steps=3) == 2
    assert capsys.readouterr().err == (
        f"{path}: must be a file, which the run rewrites; got a link to step_2.ckpt. Replace it"
        " with a copy.\n"
    )
    assert {at.name: at.read_bytes() for at in checkpoints.iterdir()} == before
    assert path.is_symlink()


def test_a_file_in_place_of_checkpoints_is_one_message(begin, capsys):
    _, folder = begin("run", "trainer.max_steps=1")
    (folder / "summary.json").unlink()
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").write_text("mine")
    capsys.readouterr()
    assert resume_run(folder) == 2
    err = capsys.readouterr().err
    assert (
        err == f"{folder / 'checkpoints'}: must be a directory, which holds the checkpoints; got a"
        " file. Move it away.\n"
    )
    assert (folder / "checkpoints").read_text() == "mine"


def test_a_new_run_replaces_no_directory(begin, tmp_path, capsys):
    (tmp_path / "run" / "metrics.csv").mkdir(parents=True)
    (tmp_path / "run" / LOCK).touch()
    assert begin("run", "trainer.max_steps=1")[0] == 2
    err = capsys.readouterr().err
    assert (
        err == f"{tmp_path / 'run' / 'metrics.csv'}: must be a file, which the run rewrites; got a"
        " directory. Move it away.\n"
    )
    assert (tmp_path / "run" / "metrics.csv").is_dir()


NO_SUMMARY = NO_OBJECT | {
    "a number as text": b'{"steps": "5"}',
    "no steps": b'{"params": 5}',
    "a loss as text": b'{"steps": 5, "val/loss": "low"}',
}


@pytest.mark.parametrize("content", NO_SUMMARY.values(), ids=NO_SUMMARY)
def test_a_damaged_summary_has_the_command_that_rewrites_it(capsys, pool, content):  # noqa: F811
    damaged, other = pool["baseline", 0], pool["placement=post", 0]
    whole = (damaged / "summary.json").read_text()
    (damaged / "summary.json").write_bytes(content)
    for words in (["compare", other, damaged], ["reproduce", damaged]):
        answer = fault(capsys, *words)
        assert answer.startswith(f"{damaged}/summary.json: ")
        assert answer.endswith(f"then write it again: xformer train resume={damaged}")
    if content == NO_OBJECT["cut"]:
        assert resume_run(damaged) == 0
        now = json.loads((damaged / "summary.json").read_text())
        assert now["val/loss"] == json.loads(whole)["val/loss"]
    (damaged / "summary.json").unlink()
    for make, remove in ((os.mkdir, os.rmdir), (os.mkfifo, os.unlink)):
        make(damaged / "summary.json")
        assert fault(capsys, "compare", other, damaged).endswith(
            f"Move it away, then write it again: xformer train resume={damaged}"
        )
        remove(damaged / "summary.json")
    assert "is not finished; it has no summary.json" in fault(capsys, "compare", other, damaged)
