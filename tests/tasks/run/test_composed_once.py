"""A run is composed and checked once, and trains the config that was checked."""

import json
import os
import pickle
from pathlib import Path

import pytest

from tasks.run.hydra_app import RunJob
from tests.forked_train import ForkedTrain, train
from xformer_kit.config import preflight, read_config
from xformer_kit.registry import ConfigError

TINY = [
    *("trainer.max_steps=1", "trainer.val_every=1", "trainer.sample=false", "logger=none"),
    *("model.dim=8", "model.layers=1", "data=copy", "data.length=4", "data.seq_len=12"),
    "data.batch_size=2",
]
# Counts compositions by Hydra, checks and reads of config.yaml in the process of a command line.
COUNTED = """
import atexit, json, sys
from collections import Counter
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from tasks.entry import main
from tasks.run import start, train

count = Counter({"composed": 0, "checked": 0, "read": 0})

def counted(owner, name, label):
    function = getattr(owner, name)
    def call(*arguments, **options):
        count[label] += 1
        return function(*arguments, **options)
    setattr(owner, name, call)

counted(ConfigLoaderImpl, "load_configuration", "composed")
counted(sys.modules["xformer_kit.config.faults.check"], "plan_and_faults", "checked")
counted(start, "read_config", "read")
counted(train, "read_config", "read")
atexit.register(lambda: json.dump(count, open("counts.json", "w")))
sys.exit(main(["train", *sys.argv[1:]]))
"""


def counts(home: Path, *words: str) -> dict[str, int]:
    """Counts of a line, whose exit code is 0."""
    script = home / "counted.py"
    script.write_text(COUNTED)
    process = ForkedTrain([*TINY, *words], home, dict(os.environ), script)
    output = process.communicate()
    assert process.returncode == 0, output
    return json.loads((home / "counts.json").read_text())


@pytest.mark.extended
@pytest.mark.parametrize(
    "words",
    [["hydra.run.dir=here", "position=alibi"], pytest.param([], marks=pytest.mark.extended)],
    ids=str,
)
def test_a_run_is_composed_once_and_checked_once(tmp_path, words):
    assert counts(tmp_path, "attn.heads=2", *words) == {"composed": 1, "checked": 1, "read": 0}


@pytest.mark.extended
def test_a_job_of_a_multirun_is_checked_once(tmp_path):
    assert counts(tmp_path, "-m", "attn.heads=1,2")["checked"] == 2


@pytest.mark.extended
@pytest.mark.parametrize("flag", [[], ["-m"], ["-m", "hydra/launcher=joblib"]], ids=" ".join)
def test_the_config_that_was_checked_is_trained(tmp_path, monkeypatch, flag):
    """Also if a file names another component than the line, which Hydra merges over it."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("position: rope\nmodel: {dim: 16}\n")
    words = [*TINY, "attn.heads=1", "experiment=mine.yaml", "position={name: alibi}"]
    words = [word for word in words if not word.startswith("model.dim")]
    where = "hydra.sweep.dir=here" if flag else "hydra.run.dir=here"
    done = train([*flag, *words, where], tmp_path, dict(os.environ))
    assert done.returncode == 0, done.stderr
    (config,) = preflight([*flag, *words]).configs
    assert read_config("here/0" if flag else "here") == config
    assert (config["position"]["name"], config["model"]["dim"]) == ("alibi", 16)


def test_the_job_of_a_sweeper_is_found_by_its_words():
    """Hydra writes a word again, without its spaces; a launcher pickles the job."""
    line = preflight(
        ["-m", *TINY, "attn.heads=1,2", "position.scaling={name: linear, factor: 2.0}"]
    )
    job = pickle.loads(pickle.dumps(RunJob(line)))
    assert list(job.checked.values()) == line.configs
    rest = [word for word in line.argv if "heads" not in word and "scaling" not in word][1:]
    words = ["++attn.heads=2", "++position.scaling={name:linear,factor:2.0}", *rest]
    assert job._checked(words, ".") is list(job.checked.values())[1]


def test_words_that_another_sweeper_made_are_composed_and_checked():
    job = RunJob(preflight(["-m", *TINY, "attn.heads=1,2"]))
    assert job._checked([*TINY, "attn.heads=4"], ".")["attn"]["heads"] == 4
    with pytest.raises(ConfigError, match=r"attn\.heads: must divide model\.dim"):
        job._checked([*TINY, "attn.heads=3"], ".")
