"""xformer reproduce: the command line of a run, what has changed since, and its metrics."""

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from tasks.cli import main
from tasks.cli.reproduction import compare_values, unused_directory
from tasks.run.start import start_run
from tests.tasks.command_lines import output
from xformer_kit import compose
from xformer_kit.config import config_hash, preflight

pytestmark = pytest.mark.extended

TINY = [
    "model.dim=16",
    "attn.heads=2",
    "data=text",
    "tokenizer=byte",
    "data.seq_len=16",
    "data.batch_size=8",
    "schedule.warmup=2",
    "trainer.log_every_n_steps=1",
    "logger=none",
    "trainer.accelerator=cpu",
]


@pytest.fixture(scope="module")
def made(text, tmp_path_factory):
    """A run of three steps."""
    home = tmp_path_factory.mktemp("made")
    words = [
        "trainer.max_steps=3",
        "trainer.val_every=null",
        "model.layers=1",
        "model.dropout=0.2",
        "seed=7",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        assert start_run(compose([*TINY, f"data.path={text}", *words]), home / "run") == 0
    return home


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    """A copy of the run, to be changed; the current directory's `run`."""
    shutil.copytree(made / "run", tmp_path / "run")
    monkeypatch.setenv("XDG_CACHE_HOME", str(made / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def change(run, name, **values):
    path = run / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_an_unchanged_run_has_no_differences_and_its_command_line_composes_it(capfd, run):
    code, out, _ = output(capfd, "reproduce", run)
    assert code == 0
    assert "Config, data, code of the components, versions and device are unchanged." in out
    typed = shlex.split(out.splitlines()[0].strip(" $"))
    assert typed[:2] == ["xformer", "train"]
    assert typed[-1] == "hydra.run.dir=outputs/reproduced/run"
    assert preflight(typed[2:]).argv
    assert not os.path.exists("outputs")
    os.makedirs("outputs/reproduced/run")
    assert unused_directory(run) == Path("outputs/reproduced/run_2")


def test_every_difference_is_a_sentence(capfd, run, text):
    facts = json.loads((run / "summary.json").read_text())
    component = next(iter(facts["code"]))
    change(
        run,
        "summary.json",
        versions=facts["versions"] | {"torch": "0.1", "gone": "1"},
        code=facts["code"] | {component: "0"},
        data_fingerprint="0" * 64,
        devices={"kind": "cuda:0"},
        stopped="by trainer.max_time",
        config_hash="0",
    )
    code, out, _ = output(capfd, "reproduce", run, "--json")
    found, notes = (json.loads(out)[key] for key in ("differences", "notes"))
    assert code == 1
    assert notes == [
        "trainer: the run ended before its last step, by trainer.max_time; another run may end at"
        " another step."
    ]
    assert [sentence.split(":")[0] for sentence in found] == [
        "config",
        "data",
        "code",
        "versions.torch",
        "versions.gone",
        "device",
    ]
    assert found[2] == f"code: {component} was changed since the run."
    assert found[3] == f"versions.torch: was 0.1, and is {facts['versions']['torch']}."
    assert found[4] == "versions.gone: was 1, and is not installed."
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"]["path"] = "nowhere.txt"
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert any(
        "nowhere.txt" in sentence
        for sentence in json.loads(output(capfd, "reproduce", run, "--json")[1])["differences"]
    )


CHANGES = [  # (changes of length, steps of each command line, number of notes)
    ([], [3], 0),
    ([(2, 2, 3)], [2, 3], 0),
    ([(1, 1, 2), (2, 2, 3)], [1, 2, 3], 0),
    ([(1, 2, 3)], [3], 1),
    ([(1, 2, 3), (3, 3, 4)], [3, 4], 1),
    ([(2, 2, 3), (2, 3, 4)], [4], 1),
]


@pytest.mark.parametrize(("lengths", "steps", "count"), CHANGES)
def test_a_run_prolonged_at_its_end_has_a_command_line_for_each_length(
    capfd, run, lengths, steps, count
):
    """And a change within a length is a note, which no command line repeats."""
    prolonged = [dict(zip(("step", "before", "max_steps"), each, strict=True)) for each in lengths]
    change(run, "summary.json", prolonged=prolonged)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["trainer"]["max_steps"] = steps[-1]
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    change(run, "summary.json", config_hash=config_hash(config))
    code, out, _ = output(capfd, "reproduce", run, "--json")
    found = json.loads(out)
    assert (code, found["differences"], len(found["notes"])) == (0, [], count)
    first, *more = (shlex.split(line)[2:] for line in found["command"].split(" && "))
    assert compose(first[:-1])["trainer"]["max_steps"] == steps[0]
    assert first[-1] == "hydra.run.dir=outputs/reproduced/run"
    resumed = "resume=outputs/reproduced/run"
    assert more == [[resumed, f"trainer.max_steps={each}"] for each in steps[1:]]


def test_a_run_trained_again_has_equal_metrics(capfd, run):
    code, out, _ = output(capfd, "reproduce", run, "--run", "--json")
    found = json.loads(out)
    assert (code, found["run"], found["differences"]) == (0, "outputs/reproduced/run", [])
    assert found["figures"].keys() >= {"steps", "val/loss", "val/perplexity"}
    assert all(figure["then"] == figure["now"] for figure in found["figures"].values())
    again, before = (
        json.loads((path / "summary.json").read_text()) for path in (run, run.parent / found["run"])
    )
    assert again["config_hash"] == before["config_hash"]


def test_metrics_that_differ_are_printed_with_their_difference(capfd, run, monkeypatch):
    def train(arguments, output_to_stderr):
        (folder := run.parent / arguments[-1].partition("=")[2]).mkdir(parents=True)
        facts = json.loads((run / "summary.json").read_text())
        facts |= {"val/loss": facts["val/loss"] * 1.5, "val/new": 2.0}
        del facts["val/perplexity"]
        (folder / "summary.json").write_text(json.dumps(facts))
        return 0

    monkeypatch.setattr("tasks.cli.reproduction.train", train)
    code, out, _ = output(capfd, "reproduce", run, "--run")
    assert code == 1
    assert "off by" in next(line for line in out.splitlines() if line.startswith("val/loss: was "))
    assert "steps: 3, equal to the last digit" in out
    code, out, _ = output(capfd, "reproduce", run, "--run", "--json")
    facts, figures = json.loads((run / "summary.json").read_text()), json.loads(out)["figures"]
    loss, perplexity = facts["val/loss"], facts["val/perplexity"]
    assert (code, figures["val/loss"]) == (1, {"then": loss, "now": 1.5 * loss})
    assert figures["val/perplexity"] == {"then": perplexity, "now": None}
    assert figures["val/new"] == {"then": None, "now": 2.0}
    monkeypatch.setattr("tasks.cli.reproduction.train", lambda arguments, output_to_stderr: 3)
    assert output(capfd, "reproduce", run, "--run")[0] == 3


def test_values_are_compared_with_their_difference():
    assert compare_values(2.5, 2.5) == "2.5, equal to the last digit"
    assert compare_values(2.0, 2.5) == "was 2.0, and is 2.5: off by 0.5, 25 %"
    assert compare_values(0.0, 0.5) == "was 0.0, and is 0.5: off by 0.5"
    assert compare_values(2.0, None) == "was 2.0, and is missing"
    assert compare_values(float("nan"), float("nan")) == "nan, equal to the last digit"


def test_runs_that_cannot_be_reproduced(capfd, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert output(capfd, "reproduce", "nowhere")[::2] == (
        2,
        "nowhere: is no directory. There is no run below outputs: xformer train begins one.\n",
    )
    config = yaml.safe_load(saved := (run / "config.yaml").read_text())
    config["attn"]["hats"] = 3
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    code, out, err = output(capfd, "reproduce", run)
    assert (code, out) == (2, "")
    assert err.startswith(f"{run}/config.yaml: attn.hats: ")
    (run / "config.yaml").write_text(saved)
    (run / "summary.json").unlink()
    code, out, err = output(capfd, "reproduce", run)
    assert (code, out) == (2, "")
    assert err.endswith(
        f"has no summary.json to compare with. Go on with it: xformer train resume={run}\n"
    )


@pytest.mark.parametrize("command", ["reproduce", "generate"])
def test_no_command_proposes_to_resume_a_run_that_diverged(capfd, run, text, monkeypatch, command):
    """Like train.py: a step is a function of the config and its number, so that a resumed run ends
    at the same step.
    """
    monkeypatch.chdir(run.parent)
    config = compose(
        [
            *TINY,
            f"data.path={text}",
            "trainer.max_steps=3",
            "optim.lr=1e38",
            "schedule=constant",
            "trainer.gradient_clip_val=null",
        ]
    )
    capfd.readouterr()
    assert start_run(config, Path("burst")) == 3
    train = capfd.readouterr().err
    if command == "generate":
        shutil.rmtree("burst/checkpoints")
    assert main([command, "burst", *["--prompt", "a"] * (command == "generate")]) == 2
    err = capfd.readouterr().err
    assert err.startswith("burst: ") and "resume=" not in err
    assert "would end at the same step: start a new one with a lower optim.lr" in err
    assert train.rpartition("same step: ")[2] == err.rpartition("same step: ")[2]


def test_all_uses_of_a_run_that_diverged_agree(capfd, text, tmp_path, monkeypatch):
    """The same sentence on what ended it, and none proposes to resume it; its weights are
    read with that sentence.
    """
    monkeypatch.chdir(tmp_path)
    options = [*TINY, f"data.path={text}", "trainer.max_steps=3", "schedule=constant"]
    options += ["trainer.gradient_clip_val=null"]
    diverges = compose([*options, "optim.lr=1e38"])
    assert start_run(diverges, Path("burst")) == 3
    capfd.readouterr()
    sentence = "A step that is not finite ended it."
    assert start_run(diverges, Path("burst")) == 2
    again = capfd.readouterr().err
    assert f"Name another directory. {sentence} Going on" in again and "resume=" not in again
    assert main(["reproduce", "burst"]) == 2
    assert sentence in capfd.readouterr().err
    for command in (["evaluate"], ["generate", "--prompt", "a", "--max-new-tokens", "2"]):
        assert main([*command, "burst"]) == 0
        err = capfd.readouterr().err
        assert err == f"burst: {sentence} The weights are those of step {last_step('burst')}.\n"
    start_run(compose([*options, "optim.lr=1e-4", "init_from=burst"]), Path("after"))
    assert f"tensors copied. {sentence}\n" in "".join(capfd.readouterr())


def last_step(run):
    return torch.load(f"{run}/checkpoints/last.ckpt", weights_only=True)["global_step"]
