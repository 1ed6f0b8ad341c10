"""A study as a user runs it: finished runs are never repeated, interrupted ones go on, two workers
share the work.
"""

import errno
import fcntl
import json
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from tasks.study.resolve import StudyPlan
from tasks.study.state import ATTEMPT_INTERVAL, CLAIM, claim, claimed, lock
from tasks.study.sweep import directory_override
from tests import forked_train
from tests.train_processes import all_ended, environment, last_step

pytestmark = pytest.mark.extended

TINY = [
    "study=norm_placement",
    "study.baseline={placement:pre}",
    "study.factors={placement:[post]}",
    "study.seeds=2",
    "study.claim=null",
    "experiment=copy",
    "model.dim=16",
    "model.layers=1",
    "attn.heads=2",
    "data.batch_size=4",
    "trainer.max_steps=40",
    "trainer.val_every=20",
    "trainer.checkpoint_every=5",
    "trainer.log_every_n_steps=1",
    "trainer.limit_val_batches=1",
    "logger=none",
]
SHORT = ["data.length=8", "data.test_length=null", "data.seq_len=20"]
STUDY = Path("outputs", "studies", "norm_placement")
REPLACED = f"{STUDY} has a report of other runs, which this study replaces; the runs are kept."


def start(home: Path, *more: str) -> forked_train.ForkedTrain:
    short = [] if any(word.startswith("data=") for word in more) else SHORT
    own = {"HOME": str(home), "TMPDIR": str(home / "tmp")} if (home / "tmp").exists() else {}
    return forked_train.ForkedTrain([*TINY, *short, *more], home, environment(home) | own)


def run_study(home: Path, *more: str, code: int = 0) -> str:
    process = start(home, *more)
    out, err = process.communicate()
    assert process.returncode == code, out + err
    return out + err


def final_metrics(home: Path) -> dict[str, dict[str, float]]:
    """Returns key -> the final metrics of the run."""
    found = {
        p.parent.name: json.loads(p.read_text())
        for p in (home / "outputs" / "runs").glob("*/summary.json")
    }
    return {
        key: {k: v for k, v in facts.items() if k.startswith("val/")}
        for key, facts in found.items()
    }


def runs(home: Path) -> list[Path]:
    return [file.parent for file in (home / "outputs" / "runs").glob("*/train.log")]


def process_counts(home: Path) -> dict[str, int]:
    """Returns key -> number of processes that trained the run."""
    return {run.name: (run / "train.log").read_text().count(" INFO process ") for run in runs(home)}


@pytest.fixture(scope="module")
def finished_study(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("study")
    output = run_study(home)
    assert "2 variants, 4 runs" in output
    return home


@pytest.fixture
def copy(finished_study, tmp_path) -> Path:
    return Path(shutil.copytree(finished_study, tmp_path / "home"))


def test_every_run_is_trained_once(finished_study):
    plan = json.loads((finished_study / STUDY / "plan.json").read_text())
    assert {run["key"] for run in plan["runs"]} == final_metrics(finished_study).keys() and len(
        final_metrics(finished_study)
    ) == 4
    assert set(process_counts(finished_study).values()) == {1}


@pytest.mark.parametrize("key", ["5434927229e53284", "0123456789012345", "7dbab1d544529a5b"])
def test_a_key_that_reads_as_a_number_names_its_directory(key):
    (word,) = OverridesParser.create().parse_overrides([directory_override(key)])
    assert word.value() == key


def test_finished_runs_are_not_repeated_and_seeds_are_added(copy):
    before = final_metrics(copy)
    output = run_study(copy)
    assert "4 runs, 4 of them done already" in output and REPLACED not in output
    assert "6 runs, 4 of them done already" in run_study(copy, "study.seeds=3")
    after = final_metrics(copy)
    assert (
        len(after) == 6
        and before.items() <= after.items()
        and set(process_counts(copy).values()) == {1}
    )


def test_the_replacement_of_a_report_of_other_runs_is_announced(copy, monkeypatch):
    assert REPLACED in run_study(copy, "study.seeds=1", "optim.lr=0.01")
    assert len(runs(copy)) == 6
    monkeypatch.chdir(copy)
    other: Any = StudyPlan({"name": STUDY.name}, [], (), [], [], None, None, None)
    assert other.replacement_note().startswith(REPLACED)
    (copy / STUDY / "report.md").unlink()
    assert other.replacement_note() == ""


def test_shared_runs_are_reused_by_another_study(copy):
    output = run_study(
        copy, "study.name=other", "study.factors={placement:[output]}", "study.seeds=1"
    )
    assert "2 runs, 1 of them done already" in output
    assert len(final_metrics(copy)) == 5


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_study_has_the_same_results(finished_study, tmp_path, number):
    """A study that is killed within a run continues from that run's checkpoint; its report is the
    same to the last digit.
    """
    process = start(tmp_path)
    until = time.monotonic() + 300
    while not any((tmp_path / "outputs").glob("runs/*/checkpoints/last.ckpt")):
        assert time.monotonic() < until and process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    run_study(tmp_path)
    assert final_metrics(tmp_path) == final_metrics(finished_study)


def test_a_run_that_was_killed_between_its_last_step_and_its_summary_is_finished(copy):
    before, (killed, *_) = final_metrics(copy), sorted(runs(copy))
    for file in ("summary.json", "ended.json"):
        (killed / file).unlink(missing_ok=True)
    assert "4 runs, 3 of them done already" in run_study(copy)
    assert final_metrics(copy) == before and process_counts(copy) == {
        run.name: 1 + (run == killed) for run in runs(copy)
    }


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_runs_of_a_launcher_are_saved_and_end_when_the_study_is_killed(tmp_path):
    """Joblib's workers do not receive the signal: without this one would train on, and one would
    wait for runs forever.
    """
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    steps = [
        "study.baseline={trainer.max_steps: 5}",
        "study.factors={trainer.max_steps: [100000]}",
        "study.seeds=1",
    ]
    never = [
        "trainer.val_every=null",
        "trainer.checkpoint_every=null",
        "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2",
    ]
    words = [word for word in TINY if not word.startswith("trainer.max_steps")]
    words += [*SHORT, *steps, *never]
    process = forked_train.ForkedTrain(words, tmp_path, environment(tmp_path))
    until = time.monotonic() + 300
    while len(final_metrics(tmp_path)) < 1 or max(map(last_step, runs(tmp_path))) < 10:
        assert time.monotonic() < until and process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert all_ended(tmp_path)
    assert len(runs(tmp_path)) == 2 and all(
        (run / "checkpoints" / "last.ckpt").exists() for run in runs(tmp_path)
    )


def test_two_machines_never_do_the_same_run(finished_study, tmp_path):
    """They share a directory of results only; one of them submits its runs as jobs."""
    machines = [tmp_path / name for name in ("first", "second")]
    for home in machines:
        (home / "tmp").mkdir(parents=True)
        (home / "outputs").symlink_to(tmp_path / "outputs")
    (tmp_path / "outputs").mkdir()
    workers = [
        start(machines[0], "hydra/launcher=submitit_local"),
        start(machines[1]),
    ]
    for worker in workers:
        out, err = worker.communicate(timeout=600)
        assert worker.returncode == 0, out + err
    assert final_metrics(tmp_path) == final_metrics(finished_study)
    assert set(process_counts(tmp_path).values()) == {1}
    assert [path.name for path in (tmp_path / "outputs" / "studies").iterdir()] == [STUDY.name]


def test_checking_a_lock_does_not_lock_out_others(tmp_path):
    """`claimed` locks the file for an instant; `claim` waits for that."""
    with claim(tmp_path) as locked, claim(tmp_path) as locked_twice:
        assert locked and not locked_twice and claimed(tmp_path)
    with open(tmp_path / CLAIM) as first, open(tmp_path / CLAIM) as second:
        assert lock(first, shared=True) and lock(second, shared=True)
        threading.Timer(ATTEMPT_INTERVAL, first.close).start()
        threading.Timer(ATTEMPT_INTERVAL, second.close).start()
        with claim(tmp_path) as locked:
            assert locked


def test_a_file_system_without_locks_is_reported_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "not implemented")))
    for name in ("first", "second"):
        with claim(tmp_path / name) as locked:
            assert locked
    assert capsys.readouterr().err == (
        "study.runs: its file system has no locks, so two processes or machines may train one run"
        " twice (not implemented).\n"
    )


def test_a_diverged_run_is_reported_with_its_step_and_not_repeated(copy):
    wild = [
        "study.name=wild",
        "study.factors={optim.lr:[1e18]}",
        "study.baseline={optim.lr:1e-3}",
        "study.seeds=1",
    ]
    output = run_study(copy, *wild)
    assert "optim.lr=1e+18 seed 0: diverged at " in output
    ended = [json.loads(p.read_text()) for p in (copy / "outputs" / "runs").glob("*/ended.json")]
    assert [end["code"] for end in ended] == [3] and ended[0]["step"] >= 1
    assert "2 runs, 2 of them done already" in run_study(copy, *wild)


def test_a_metric_that_runs_do_not_have_is_refused_with_the_known_ones(copy):
    output = run_study(copy, "study.metric=val/bleu", "study.seeds=3", code=2)
    assert (
        "study.metric: a run has no metric called 'val/bleu'. It has: val/loss, val/perplexity,"
        in output
    )


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (
            ["placement=post"],
            (
                "placement: is a factor of the study, which sets it in every variant; got"
                " placement=post."
            ),
        ),
        (
            ["attn.heads=2,4"],
            "attn.heads: a study is a sweep already; got attn.heads=2,4. Make it a factor",
        ),
        (
            ["study.metric=val/lss"],
            (
                "study.metric: it is not known whether 'val/lss' is better higher or lower. Did you"
                " mean"
            ),
        ),
        (
            ["study.factors={norm:[layer]}"],
            "study.baseline: must give every factor its level; got none for 'norm'.",
        ),
        (
            ["study.factors={placement:[pre]}"],
            "study.factors.placement: has no level but the baseline's, pre",
        ),
        (
            ["study.factors={placement:[pots]}"],
            "placement: no placement is called 'pots'. Did you mean 'post'?",
        ),
        (
            ["study.factors={tokenizer:[byte]}", "study.baseline={tokenizer:char}", "data=pydoc"],
            (
                "study.metric: a loss per token does not compare between tokenizers, in which the"
                " variants differ; got val/loss. Try study.metric=val/bits_per_byte."
            ),
        ),
        (["study.max_runs=3"], "study.max_runs: must hold the 4 runs of the design; got 3"),
    ],
)
def test_refused_studies_write_nothing(tmp_path, words, fault):
    output = run_study(tmp_path, *words, code=2)
    assert output.startswith(fault) and not (tmp_path / "outputs").exists(), output
