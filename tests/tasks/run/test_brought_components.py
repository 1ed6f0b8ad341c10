"""Runs and studies whose file brings components, started in another directory."""

import json

import pytest

from tests.forked_train import train
from tests.tasks.command_lines import output
from tests.train_processes import SMALL_DECODER, environment
from tests.user_components import forget_user_components
from xformer_kit import load

OWN = '''
from xformer_kit.ffn import FFNS, MLP

@FFNS.register("mine")
class Mine(MLP):
    """A network of one's own."""
'''
STUDY = """
defaults: [override /ffn: mine]
components: [mine.py]
study:
  question: Which activation is better?
  baseline: {ffn.activation: relu}
  factors: {ffn.activation: [gelu]}
  budget: {match: none}
  seeds: 1
"""
TINY = [
    *SMALL_DECODER,
    "data.path=text.txt",
    "data.batch_size=4",
    "trainer.max_steps=2",
    "trainer.limit_val_batches=1",
    "schedule.warmup=1",
    "logger=none",
]
LINE = "The config file brings components, whose code is run: ../project/mine.py\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The current directory; the files that bring components are next to it, in project/."""
    project, here = tmp_path / "project", tmp_path / "here"
    project.mkdir()
    here.mkdir()
    (project / "mine.py").write_text(OWN)
    (project / "mine.yaml").write_text("components: [mine.py]\nffn: mine\n")
    (project / "study.yaml").write_text(STUDY)
    (here / "text.txt").write_text("the cat sat on a mat and saw what it had not seen. " * 60)
    monkeypatch.chdir(here)
    yield here
    forget_user_components()


@pytest.mark.extended
def test_a_run_is_resumed_and_loaded_with_its_file(home, capsys):
    words = [*TINY, "experiment=../project/mine.yaml", "hydra.run.dir=run"]
    done = train(words, home, environment(home))
    assert (done.returncode, done.stderr.startswith(LINE)) == (0, True), done.stderr
    assert [*json.loads((home / "run" / "components.json").read_text())] == ["mine.py"]
    assert "--components ../project/mine.py" not in done.stdout  # an absolute path, for any place
    assert f"--components {home.parent}/project/mine.py" in done.stdout
    file = "../project/mine.py"
    assert load("run", components=[file])
    code, _, err = output(capsys, "train", "resume=run", "trainer.max_steps=3")
    assert (code, "got no file called 'mine.py'" in err) == (2, True), err
    line = ["resume=run", "trainer.max_steps=3", f"components=[{file}]"]
    assert train(line, home, environment(home)).returncode == 0


@pytest.mark.extended
def test_a_study_and_its_repetition_find_the_file(home):
    words = [*TINY, "study=../project/study.yaml"]
    for _ in range(2):
        done = train(words, home, environment(home))
        assert done.returncode == 0, done.stderr
        assert LINE in done.stderr
    plan = json.loads((home / "outputs" / "studies" / "study" / "plan.json").read_text())
    assert plan["components"] == ["../project/mine.py"]
    assert len([*(home / "outputs" / "runs").iterdir()]) == 2
