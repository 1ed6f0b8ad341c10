"""Runs whose files were changed since they were trained, by damage or by hand: refused, with
nothing replaced.
"""

import errno
import os
import re
import shutil
from pathlib import Path

import pytest
import torch

from tasks import cli
from tasks.run.resume import resume_run
from tasks.run.start import start_run
from tests.tasks.conftest import TINY
from xformer_kit import ConfigError, compose, load
from xformer_kit.text import command_lines

pytestmark = pytest.mark.extended


def change(folder, old, new):
    path = folder / "config.yaml"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


@pytest.fixture
def unfinished(begin):
    """A run that was killed after its last checkpoint."""
    code, folder = begin("run")
    assert code == 0
    (folder / "summary.json").unlink()
    return folder


def contents(folder):
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in LOGS
    }


PROMPT = ["--prompt", "the"]
LOGS = ("train.log", "ended.json", ".lock")


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ("  lr: 0.002", "  lr: 0.2", "optim.lr was 0.002 and is 0.2"),
        ("  dim: 16", "  dim: 32", "model.dim was 16 and is 32"),
        ("  activation: silu", "  activation: gelu", "ffn.activation was 'silu' and is 'gelu'"),
    ],
    ids=["rate", "size", "component"],
)
def test_a_config_that_was_changed_since_the_checkpoint_is_refused(
    unfinished, capsys, old, new, answer
):
    change(unfinished, old, new)
    before = contents(unfinished)
    capsys.readouterr()
    assert resume_run(unfinished) == 2
    err = capsys.readouterr().err
    assert answer in err and "Traceback" not in err and err.count("\n") == 1
    assert contents(unfinished) == before


def test_a_run_whose_data_moved_can_be_resumed(unfinished, text, tmp_path):
    other = tmp_path / "moved.txt"
    other.write_text(text.read_text())
    change(unfinished, str(text), str(other))
    assert resume_run(unfinished) == 0


def test_without_a_valid_checkpoint_no_file_is_replaced(unfinished, capsys):
    for path in (unfinished / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-30])
    before = contents(unfinished)
    capsys.readouterr()
    assert resume_run(unfinished) == 2
    err = capsys.readouterr().err
    assert "no checkpoint of the run can be read; " in err and "Traceback" not in err
    assert contents(unfinished) == before


@pytest.mark.parametrize("command", ["generate", "evaluate", "describe", "resume"])
def test_sizes_beyond_any_machine_are_refused_by_all_commands(begin, capsys, command):
    _, folder = begin("run", "trainer.max_steps=1")
    (folder / "summary.json").unlink()
    change(folder, "  layers: 2", "  layers: 100000000")
    capsys.readouterr()
    code = (
        resume_run(folder)
        if command == "resume"
        else cli.main([command, str(folder), *PROMPT * (command == "generate")])
    )
    assert code == 2
    assert re.search(
        r"model\.layers: must be at most 10,000 blocks; got 100000000|model\.layers was 2",
        capsys.readouterr().err,
    )


def test_weights_larger_than_the_memory_are_not_built(begin, monkeypatch):
    _, folder = begin("run", "trainer.max_steps=1")
    monkeypatch.setattr(
        "xformer_kit.config.faults.size._memory", lambda trainer: (2**20, "this machine")
    )
    monkeypatch.setattr("xformer_kit.config.faults.size._may_be_large", lambda config: True)
    load(folder)  # some 46 KB
    monkeypatch.setattr(
        "xformer_kit.config.faults.size._memory", lambda trainer: (2**12, "this machine")
    )
    with pytest.raises(
        ConfigError, match=r"model: its weights need about 0 GiB, and this machine has 0 GiB"
    ):
        load(folder)


def test_rows_lost_before_a_resume_are_reported_once(unfinished, capsys):
    (unfinished / "checkpoints" / "last.ckpt").unlink()  # from step 15 of 20 on
    file = unfinished / "metrics.csv"
    kept = file.read_text().splitlines(keepends=True)[:-8]
    file.write_text("".join(kept))
    capsys.readouterr()
    assert resume_run(unfinished) == 0
    message = f"{file}: rows up to the checkpoint are missing or were changed.\n"
    assert capsys.readouterr().err.count(message) == 1
    assert [row.split(",")[0] for row in file.read_text().splitlines()[1:]] == [
        *map(str, range(1, 13)),
        *map(str, range(16, 21)),
    ]
    (unfinished / "summary.json").unlink()
    assert resume_run(unfinished) == 0
    assert "rows up to" not in capsys.readouterr().err


def change_checkpoint(file, **changes):
    """Change entries of a checkpoint; the archive stays whole."""
    state = torch.load(file, weights_only=True)
    for key, value in changes.items():
        state[key] = value(state[key]) if callable(value) else value
    torch.save(state, file)


def without(mapping, *keys):
    return {key: value for key, value in mapping.items() if key not in keys}


def with_a_wrong_shape(weights):
    return weights | {next(iter(weights)): torch.zeros(3)}


def in_state(change):
    return lambda found: (
        found | {"state": {key: change(dict(kept)) for key, kept in found["state"].items()}}
    )


def in_groups(change):
    return lambda found: (
        found | {"param_groups": [change(dict(group)) for group in found["param_groups"]]}
    )


DAMAGE = {
    "step": {"global_step": "ten"},
    "beyond the run": {"global_step": 10_000},
    "optimizer": {"optimizer": {}},
    "weights": {"state_dict": with_a_wrong_shape},
    "a weight less": {"state_dict": lambda found: without(found, next(iter(found)))},
    "a weight more": {"state_dict": lambda found: found | {"more": torch.zeros(1)}},
    "average": {"average": with_a_wrong_shape},
    "no state": {"optimizer": lambda found: found | {"state": {}}},
    "a group less": {
        "optimizer": lambda found: found | {"param_groups": found["param_groups"][:1]}
    },
    "no parameters": {"optimizer": in_groups(lambda group: group | {"params": []})},
    "no betas": {"optimizer": in_groups(lambda group: without(group, "betas"))},
    "a rate as text": {"optimizer": in_groups(lambda group: group | {"lr": "x"})},
    "other parameters": {"optimizer": lambda found: found | {"state": {99: found["state"][0]}}},
    "a moment less": {"optimizer": in_state(lambda kept: without(kept, "exp_avg"))},
    "a moment's shape": {"optimizer": in_state(lambda kept: kept | {"exp_avg": torch.zeros(3)})},
    "a moment's type": {"optimizer": in_state(lambda kept: kept | {"exp_avg_sq": 3})},
    "a moment's step": {"optimizer": in_state(lambda kept: kept | {"step": "x"})},
}


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    """A run that was killed after its last checkpoint; to be copied."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    words = ["schedule.warmup=2", f"data.path={text}", "ema.decay=0.9", "data.cache=null"]
    assert start_run(compose([*TINY, *words]), folder) == 0
    (folder / "summary.json").unlink()
    return folder


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_checkpoint_with_a_wrong_value_is_skipped(trained, tmp_path, monkeypatch, capsys, damage):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    last = folder / "checkpoints" / "last.ckpt"
    change_checkpoint(last, **damage)
    (key,) = damage
    none = tmp_path / "none"
    shutil.copytree(folder, none)
    for path in (none / "checkpoints").iterdir():
        path.write_bytes(last.read_bytes())
    assert resume_run(folder) == 0
    err = capsys.readouterr().err
    assert (
        f"{last} is damaged (its {key}" in err
        and "is left aside." in err
        and "Traceback" not in err
    )
    assert "Going on at step 15 of 20." in err
    assert (folder / "summary.json").is_file()
    before = contents(none)
    assert resume_run(none) == 2
    err = capsys.readouterr().err.splitlines()
    assert (
        len(err) == 1
        and err[0].startswith("resume: no checkpoint of the run can be read; ")
        and key in err[0]
    )
    assert contents(none) == before


def test_the_checkpoint_a_run_resumed_from_survives_a_kill_during_the_next_save(
    trained, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    change_checkpoint(folder / "checkpoints" / "last.ckpt", global_step="ten")
    (folder / "checkpoints" / "best.ckpt").unlink()
    replace = os.replace

    def killed(source, target):
        if Path(target).name == "last.ckpt":
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed)
    assert resume_run(folder) == 1
    monkeypatch.setattr(os, "replace", replace)
    capsys.readouterr()
    assert resume_run(folder) == 0
    assert "Going on at step 15 of 20." in capsys.readouterr().err


def test_weights_of_another_shape_are_not_averaged(begin, capsys):
    words = ["checkpoints.average=3", "trainer.checkpoint_every=5", "trainer.val_every=20"]
    _, folder = begin("mean", *words)
    for name in (
        "summary.json",
        "checkpoints/last.ckpt",
        "checkpoints/best.ckpt",
    ):  # back to step 15
        (folder / name).unlink()
    kept = folder / "checkpoints" / "weights_10.pt"
    torch.save(with_a_wrong_shape(torch.load(kept, weights_only=True)), kept)
    capsys.readouterr()
    assert resume_run(folder) == 0
    assert f"{kept} is damaged (its weights." in capsys.readouterr().err


UNREAD = {"yaml": "a: [1", "a list": "[1, 2]", "itself": "a: &a [*a]", "long": "a: " + "x" * 2**17}


@pytest.mark.parametrize("text_", UNREAD.values(), ids=UNREAD)
def test_a_checkpoint_whose_config_cannot_be_read_is_damaged(
    trained, tmp_path, monkeypatch, capsys, text_
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    last, previous, best = (
        folder / "checkpoints" / f"{name}.ckpt" for name in ("last", "previous", "best")
    )
    change_checkpoint(last, config=text_)
    assert cli.main(["evaluate", str(folder), "--json"]) == 0
    err = capsys.readouterr().err
    assert err.startswith(f"{last}: is damaged (its config") and err.endswith(
        "Used instead: previous.\n"
    )
    for path in (previous, best):
        change_checkpoint(path, config=text_)
    before = contents(folder)
    assert cli.main(["evaluate", str(folder)]) == 2
    err = capsys.readouterr().err
    assert f"{last}: is damaged (its config" in err and err.endswith("Train it again.\n")
    with pytest.raises(
        ConfigError, match=rf"^{best}: cannot be read as a checkpoint: its config.*Load another"
    ):
        load(folder)
    assert resume_run(folder) == 2
    err = capsys.readouterr().err
    assert (
        err.startswith("resume: no checkpoint of the run can be read; ")
        and err.count("is damaged (its config") == 3
    )
    assert err.count("\n") == 1 and contents(folder) == before


def test_a_config_that_was_changed_since_the_end_is_refused(begin, capsys):
    _, folder = begin("run", "trainer.max_steps=1")
    text_ = (folder / "config.yaml").read_text()
    finished = (
        f"The run in {folder} is finished: 1 steps. To train it for longer:"
        f" {command_lines.resume(folder)} trainer.max_steps=2\n"
    )
    change(folder, "  lr: 0.002", "  lr: 0.2")
    before = contents(folder)
    capsys.readouterr()
    assert resume_run(folder) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(
        f"{folder / 'config.yaml'}: must be as it was when the run was trained; optim.lr was 0.002"
        " and is 0.2."
    )
    assert contents(folder) == before
    shutil.move(folder / "checkpoints", folder / "moved")  # nothing says what the config was
    assert (resume_run(folder), capsys.readouterr().out) == (0, finished)
    shutil.move(folder / "moved", folder / "checkpoints")
    for path in (folder / "checkpoints").iterdir():
        path.write_bytes(b"")
    assert (resume_run(folder), capsys.readouterr().out) == (0, finished)
    (folder / "config.yaml").write_text(text_)
    change(folder, "  num_workers: ", "  num_workers: 1")  # which decides no result
    assert (resume_run(folder), capsys.readouterr().out) == (0, finished)
