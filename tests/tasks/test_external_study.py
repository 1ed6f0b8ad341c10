"""A study of another trainer from its command line: a script of ten lines."""

import json
import signal
import time
from pathlib import Path

import pytest

from tests import forked_train
from tests.train_processes import environment

pytestmark = pytest.mark.extended

SCRIPT = """
import json, sys, time
rate, seed, folder = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if seed == 9:
    raise SystemExit("out of memory")
time.sleep(float(sys.argv[4]))
with open(folder + "/log.jsonl", "w") as log:
    for step in range(3):
        loss = 2 + 0.01 * seed + (100 + seed % 2) * rate - 0.1 * step
        log.write(json.dumps({"step": step, "val_loss": loss}) + "\\n")
"""
STUDY = [
    "study=external",
    "study.command=python script.py {lr} {seed} {dir} 0",
    "study.factors={lr: [0.001, 0.003]}",
    "study.result={dir}/log.jsonl:val_loss",
    "study.seeds=3",
]


@pytest.fixture
def home(tmp_path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def start(home: Path, *more: str) -> forked_train.ForkedTrain:
    return forked_train.ForkedTrain([*STUDY, *more], home, environment(home))


def run_study(home: Path, *more: str) -> tuple[int, str]:
    process = start(home, *more)
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    return process.returncode, " ".join((out + err).split())


def test_a_script_of_ten_lines_is_judged_and_its_runs_are_not_repeated(home):
    code, page = run_study(home)
    assert code == 0 and "lr=0.003 is worse by 0.2007 nats" in page
    logs = {path: path.read_text() for path in home.glob("outputs/runs/*/train.log")}
    assert len(logs) == 6
    code, page = run_study(
        home, "study.seeds=4", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"
    )
    assert code == 0 and "8 runs, 6 of them done already" in page
    assert {path: path.read_text() for path in logs} == logs


def test_a_command_that_fails_is_one_failed_run(home):
    code, page = run_study(home, "study.seeds=[0, 1, 9]")
    assert code == 1 and "failed: its command ended with exit code 1: out of memory" in page
    ended = [json.loads(path.read_text()) for path in home.glob("outputs/runs/*/ended.json")]
    assert len(ended) == 2 and len([*home.glob("outputs/runs/*/summary.json")]) == 4
    code, page = run_study(home, "study.result={dir}/no.csv:val_loss", "study.name=other")
    assert code == 1 and "failed: it wrote no no.csv" in page


def test_a_stopped_study_goes_on(home):
    slow = "study.command=python script.py {lr} {seed} {dir} 1"
    process = start(home, slow)
    while not [*home.glob("outputs/runs/*/summary.json")]:
        time.sleep(0.1)
        assert process.poll() is None
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Stopped. Go on with: xformer train study=external" in err
    done = [*home.glob("outputs/runs/*/summary.json")]
    assert 0 < len(done) < 6 and not [*home.glob("outputs/runs/*/ended.json")]
    assert run_study(home, slow)[0] == 0
    assert len([*home.glob("outputs/runs/*/summary.json")]) == 6


def test_a_command_that_outlives_its_study_is_not_started_twice(home):
    """After a kill -9 of the study, its command holds the lock of the run."""
    text = SCRIPT.replace("time.sleep(", "open(folder + '/starts', 'a').write('x')\ntime.sleep(")
    (home / "script.py").write_text(text)
    slow = "study.command=python script.py {lr} {seed} {dir} 4"
    process = start(home, slow, "study.seeds=1")
    while not (started := [*home.glob("outputs/runs/*/starts")]):
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    log = started[0].with_name("log.jsonl")
    again = start(home, slow, "study.seeds=1")
    while not log.exists():
        assert started[0].read_text() == "x"
        time.sleep(0.1)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, out + err


def test_a_plan_is_printed_as_commands(home):
    code, page = run_study(home, "study.dry_run=true", "study.seeds=1")
    assert code == 0 and page.startswith("python script.py 0.001 0 outputs/runs/")
    assert not [*home.glob("outputs/runs/*")]


def test_an_option_of_a_model_belongs_into_the_command(home):
    code, page = run_study(home, "model.dim=64")
    assert code == 2 and "model.dim: is an option of a run, and study.command" in page
