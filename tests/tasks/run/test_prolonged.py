"""Runs that resume with another trainer.max_steps."""

import csv
import itertools
import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch

from tasks.checkpoints.checkpoints import newest
from tasks.cli import main
from tasks.cli.reproduction import compared_values, differences, notes, train_lines
from tasks.logging import summary
from tasks.modules.module import Task
from tasks.process.exit_codes import Ended
from tasks.run import prolonged
from tasks.run.resume import resume_run
from tasks.run.start import start_run
from tests.tasks.checkpoints.test_checkpoints import checkpoint
from tests.tasks.conftest import TINY
from tests.tasks.run.test_saved_runs import contents
from tests.test_resume import same, state
from xformer_kit.config import compose, config_yaml, preflight
from xformer_kit.optim.schedules import SCHEDULES
from xformer_kit.registry import ConfigError
from xformer_kit.study.run_key import run_key

REGULARISED = ["model.dropout=0.2", "ema.decay=0.9"]


def learning_rates(run):
    return [row["lr"] for row in csv.DictReader((run / "metrics.csv").open())]


@pytest.mark.parametrize(
    "schedule", ["constant", pytest.param("inverse_sqrt", marks=pytest.mark.extended)]
)
def test_a_schedule_without_an_end_gives_the_run_that_was_long_from_the_beginning(
    begin, capsys, schedule
):
    words = [f"schedule={schedule}", *REGULARISED]
    _, long = begin("long", *words, "trainer.max_steps=30")
    _, run = begin("run", *words)
    assert resume_run(run, max_steps=30) == 0
    assert (
        "From 20 to 30 steps: the result will be that of a run of 30 steps from the beginning"
        in capsys.readouterr().err
    )
    a, b = state(long), state(run)
    for component in (
        "global_step",
        "state_dict",
        "optimizer",
        "average",
        "metric_sums",
        "best_steps",
    ):
        assert same(a[component], b[component]), component
    assert (run / "metrics.csv").read_bytes() == (long / "metrics.csv").read_bytes()
    assert (run / "config.yaml").read_text() == (long / "config.yaml").read_text()
    assert summary.read(run)["prolonged"] == [{"step": 20, "before": 20, "max_steps": 30}]
    assert resume_run(run) == resume_run(run, max_steps=30) == 0
    again = f"is finished: 30 steps. To train it for longer: xformer train resume={run} trainer."
    assert capsys.readouterr().out.replace("python train.py", "xformer train").count(again) == 2


def stop_at(begin, step, *words):
    """A run of 20 steps that ends at a step, with its checkpoint."""
    start = Task._start_step

    def stop(task):
        if task.step == step:
            raise Ended("stopped")
        start(task)

    with mock.patch.object(Task, "_start_step", stop):
        code, run = begin(f"stopped_{step}", *words)
    assert code == 1 and state(run)["global_step"] == step
    return run


# Steps of 20, after which a run of 30 has had the same learning rates; the warm-up is 2 steps.
EQUAL_SO_FAR = {
    "constant": (0, 2, 10, 17, 20),
    "inverse_sqrt": (0, 2, 10, 17, 20),
    "wsd": (0, 2, 10),
    "cosine": (0, 2),
    "linear": (0, 2),
    "one_cycle": (0, 2),
    "polynomial": (0, 2),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_which_schedules_have_the_learning_rates_of_a_longer_run(schedule):
    options = {"warmup": 2, "decay": 0.2}
    known = SCHEDULES.options(schedule)
    node = {"name": schedule} | {key: v for key, v in options.items() if key in known}
    equal = tuple(
        step
        for step in (0, 2, 10, 17, 20)
        if prolonged.has_same_rates({"schedule": node}, step, 20, 30)
    )
    assert equal == EQUAL_SO_FAR[schedule]


@pytest.mark.extended
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_that_is_told_to_be_the_long_one_is_it(begin, capsys, schedule):
    """Each schedule, resumed in the warm-up and later."""
    words = [f"schedule={schedule}", *REGULARISED, "trainer.checkpoint_every=1"]
    _, long = begin("long", *words, "trainer.max_steps=30")
    for step in (2, 10):
        run = stop_at(begin, step, *words)
        capsys.readouterr()
        assert resume_run(run, max_steps=30) == 0
        equal = "the result will be that of a run of 30 steps" in capsys.readouterr().err
        assert equal == (step in EQUAL_SO_FAR[schedule])
        for component in ("state_dict", "optimizer", "average"):
            assert same(state(run)[component], state(long)[component]) == equal
        assert learning_rates(run)[step:] == learning_rates(long)[step:]


@pytest.mark.extended
def test_the_average_of_checkpoints_is_that_of_the_long_run(begin):
    """The checkpoint at the former end, step 18, is not one of those that the long run saves."""
    words = ["schedule=constant", "checkpoints.average=4"]
    _, long = begin("long", *words, "trainer.max_steps=25")
    _, run = begin("run", *words, "trainer.max_steps=18")
    assert resume_run(run, max_steps=25) == 0
    assert same(state(long)["average"], state(run)["average"])


@pytest.mark.extended
def test_steps_so_far_keep_their_learning_rates_and_later_ones_have_those_of_the_long_run(
    begin, capsys, tmp_path
):
    _, long = begin("long", "trainer.max_steps=30")
    _, run = begin("run")
    before = learning_rates(run)
    assert resume_run(run, max_steps=30) == 0
    assert "the 20 steps so far keep their learning rates" in capsys.readouterr().err
    assert learning_rates(run) == before + learning_rates(long)[20:]
    config, facts = prolonged.read_config(run), summary.read(run)
    assert not [*differences(config, facts, []), *notes(config, facts)]
    first, then = train_lines(config, facts, [], again := tmp_path / "again")
    assert then == [f"resume={again}", "trainer.max_steps=30"]
    assert start_run(compose(first[:-1]), again) == 0 == resume_run(again, max_steps=30)
    assert compared_values(summary.read(again)) == compared_values(facts)


@pytest.mark.extended
def test_a_prolonged_run_that_is_killed_resumes_with_its_new_length(begin, monkeypatch):
    """Killed after config.yaml was written and before a checkpoint, then after one."""
    words = ["schedule=constant"]
    _, long = begin("long", *words, "trainer.max_steps=30")
    _, run = begin("run", *words)
    for steps in (25, 30):
        config = prolonged.with_length(prolonged.read_config(run), steps)
        prolonged.record(run, config, 20, 100)
    assert [change["max_steps"] for change in prolonged.changes(run)] == [30]
    assert resume_run(run) == 0
    assert same(state(long)["state_dict"], state(run)["state_dict"])
    (run / "summary.json").unlink()
    assert resume_run(run) == 0


def test_a_run_that_is_killed_between_the_files_of_a_new_length_has_one_of_both(begin, capsys):
    """At the first, second or third of: prolonged.json, config.yaml, removal of summary.json."""
    _, run = begin("run", "trainer.max_steps=2")
    before = contents(run)
    replace, unlink = prolonged.replace_text, Path.unlink
    for at, length in ((1, 2), (2, 4), (3, 4)):
        killed = run.with_name(f"killed_{at}")
        shutil.copytree(run, killed)
        calls = itertools.count(1)

        def until(function, calls=calls, at=at):
            def call(*arguments, **options):
                if next(calls) == at:
                    raise Ended("killed")
                return function(*arguments, **options)

            return call

        with (
            mock.patch.object(prolonged, "replace_text", until(replace)),
            mock.patch.object(Path, "unlink", until(unlink)) if at == 3 else nullcontext(),
        ):
            assert resume_run(killed, max_steps=4) == 1
        if length == 2:
            assert [*contents(killed).values()] == [*before.values()]
        assert resume_run(killed) == 0
        assert state(killed)["global_step"] == length, at
        assert prolonged.read_config(killed)["trainer"]["max_steps"] == length


@pytest.mark.extended
@pytest.mark.parametrize("length", ["trainer.max_epochs=1", "trainer.max_tokens=1000"])
def test_epochs_and_tokens_are_no_limit_of_a_run_that_is_prolonged(begin, length):
    _, run = begin("run", "schedule=constant", "trainer.max_steps=null", length)
    steps = state(run)["global_step"]
    assert resume_run(run, max_steps=steps + 3) == 0
    assert state(run)["global_step"] == steps + 3


@pytest.mark.parametrize("taken", [None, 1, 10])
def test_the_new_length_is_above_the_steps_taken(config, tmp_path, capsys, taken):
    """taken: None for a run that was killed before its first checkpoint."""
    run, saved = tmp_path / "run", config()
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text(config_yaml(saved))
    if taken is not None:
        saved_state = replace(checkpoint(taken, torch.zeros(1)), config=config_yaml(saved))
        torch.save(saved_state.entries(), run / "checkpoints" / "last.ckpt")
    before = contents(run)
    for steps in range(1, (taken or 0) + 1):
        assert resume_run(run, max_steps=steps) == 2
        assert (
            f"trainer.max_steps: must be above the {taken} steps that the run in {run} has taken;"
            f" got {steps}.\n"
        ) in capsys.readouterr().err
    prolonged.check_length(run, saved, (taken or 0) + 1)
    assert contents(run) == before


@pytest.mark.extended
def test_a_length_that_is_no_longer_is_refused_and_nothing_is_written(begin, capsys):
    _, run = begin("run")
    before = contents(run)
    assert resume_run(run, max_steps=15) == 2
    assert capsys.readouterr().err.endswith(
        f"trainer.max_steps: must be above the 20 steps that the run in {run} has taken; got 15.\n"
    )
    config = prolonged.read_config(run)
    key = run_key(config, newest(run / "checkpoints")[1].data_fingerprint)
    of_study = run.with_name(key)
    shutil.copytree(run, of_study)
    assert resume_run(of_study, max_steps=30) == 2
    assert "cannot change for a run of a study" in capsys.readouterr().err
    (run / "prolonged.json").write_text(json.dumps({"changes": [{"step": 20}]}))
    assert resume_run(run) == 2
    assert "must have max_steps, a whole number, in each change" in capsys.readouterr().err
    (run / "prolonged.json").unlink()
    assert contents(run) == before


def test_a_run_that_a_callback_ended_is_not_prolonged(begin, capsys):
    """Its state is that of the end: it would take no step."""
    _, run = begin(
        "run",
        "trainer.val_every=2",
        "callbacks.early_stopping={patience: 2, min_delta: 9}",
    )
    before = contents(run)
    assert resume_run(run, max_steps=30) == 2
    answer = capsys.readouterr().err
    assert (
        f"trainer.max_steps: cannot change: the run in {run} has ended, stopped by callbacks.early"
        in answer
    )
    assert answer.endswith("Start a new run from its weights, with init_from.\n")
    assert contents(run) == before
    assert resume_run(run) == 0
    line = capsys.readouterr().out
    assert "at step 6 of 20" in line and "for longer" not in line


@pytest.mark.extended
def test_two_changes_at_one_step_are_one(begin, capsys):
    """No step has had the first one: the last rate is that of the run as it was."""
    run = stop_at(begin, 10, "schedule=linear")
    with mock.patch.object(Task, "_start_step", side_effect=Ended("stopped")):
        assert resume_run(run, max_steps=400) == 1
    first = capsys.readouterr().err
    assert resume_run(run, max_steps=30) == 0
    lines = [
        text.partition("The last one was ")[2].split(",")[0]
        for text in (first, capsys.readouterr().err)
    ]
    assert lines[0] == lines[1] != ""
    assert summary.read(run)["prolonged"] == [{"step": 10, "before": 20, "max_steps": 30}]


@pytest.mark.extended
def test_a_line_that_resumes_may_repeat_what_the_run_has(begin, config):
    words = ("attn=gqa", "attn.kv_heads=1", "model.dropout=0.1")
    _, run = begin("run", *words, "trainer.max_steps=2")
    whole = [word for word in TINY if not word.startswith("trainer.max_steps")]
    whole += [f"data.path={config()['data']['path']}", *words]
    resume = f"resume={run}"
    for words in (
        ["model.dropout=0.1"],
        [f"hydra.run.dir={run}"],
        ["attn=multi_head", "attn.kv_heads=1"],
        ["attn=gqa"],
        ["attn=multi_head"],
        ["attn=mqa", "model=decoder", "data=text", "model.residual_multiplier=1"],
        [*whole, "schedule.warmup=1"],
    ):
        preflight([resume, *words, "trainer.max_steps=3"])
    for words in (
        ["model.dropout=0.2"],
        ["ffn=geglu"],
        ["attn=linear"],
        ["model=encoder"],
        [*whole, "schedule.warmup=2"],
    ):
        with pytest.raises(ConfigError, match="cannot change"):
            preflight([resume, *words])


RUN = "resume=outputs/x"


@pytest.fixture
def run_x(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs" / "x").mkdir(parents=True)
    (tmp_path / "outputs" / "x" / "config.yaml").write_text(config_yaml(config()))


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            [RUN, "attn.heads=4"],
            "attn.heads: cannot change: the weights to resume from are of the model in the run's"
            " config; got attn.heads=4. Leave it out, or start a new run.",
        ),
        ([RUN, "data=stdlib_code"], "data: cannot change: the steps so far were taken on the data"),
        ([RUN, "optim.lr=1e-4"], "optim.lr: cannot change: the steps so far were taken with that"),
        ([RUN, "logger=csv"], "logger: cannot change: a run is resumed with its own config"),
        ([RUN, "hydra.run.dir=x"], "hydra.run.dir: cannot change: a run that is resumed stays"),
        ([RUN, "study=ladder"], "study: a run is resumed, and a study goes on with its own line"),
        ([RUN, "trainer.max_steps=0"], "trainer.max_steps: must be at least 1; got 0."),
        ([RUN, "trainer.max_steps=1.5"], "trainer.max_steps: must be a whole number"),
        ([RUN, "trainer.max_steps=null"], "trainer.max_steps: must be the new number of steps"),
        ([RUN, "trainer.max_steps=10,20"], "trainer.max_steps: takes one number of a run"),
        (
            [RUN, "trainer.max_tokens=1e9"],
            "trainer.max_tokens: cannot change: the new length of a run that is resumed is a number"
            " of steps; got trainer.max_tokens=1e9. Give trainer.max_steps=N.",
        ),
    ],
)  # fmt: skip
def test_other_arguments_of_a_resumed_run_are_refused_with_their_reason(run_x, words, answer):
    with pytest.raises(ConfigError) as error:
        preflight(words)
    assert str(error.value).startswith(answer)


def test_a_new_run_is_proposed_from_the_weights_of_the_run(run_x):
    with pytest.raises(ConfigError) as error:
        preflight([RUN, "schedule=constant", "+foo=3"])
    fix = "Leave it out, or start a new run from its weights, with init_from=outputs/x."
    assert [fault.fix for fault in error.value.faults] == [fix, fix]


def test_a_directory_that_is_no_run_is_the_only_fault(capsys):
    assert main(["train", "resume=none", "model.dim=16"]) == 2
    assert capsys.readouterr().err.startswith("resume: none is not a directory.")


def test_every_argument_of_a_resumed_run_has_a_sentence_of_its_own(run_x):
    with pytest.raises(ConfigError) as error:
        preflight([RUN, "attn.heads=4", "optim.lr=1", "trainer.max_steps=30"])
    assert [fault.path for fault in error.value.faults] == ["attn.heads", "optim.lr"]
    assert preflight([RUN, "trainer.max_steps=30"]).max_steps == 30
