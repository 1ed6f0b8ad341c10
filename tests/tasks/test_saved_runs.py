"""Runs whose files were changed since they were trained, by damage or by hand: refused, with nothing replaced."""

import re

import pytest

from tasks import cli, run
from xformer_kit import ConfigError, load


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
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name not in LOGS}


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
def test_a_config_that_was_changed_since_the_checkpoint_is_refused(unfinished, capsys, old, new, answer):
    change(unfinished, old, new)
    before = contents(unfinished)
    capsys.readouterr()
    assert run.resume(unfinished) == 2
    err = capsys.readouterr().err
    assert answer in err and "Traceback" not in err and err.count("\n") == 1
    assert contents(unfinished) == before


def test_a_run_that_was_moved_with_its_data_goes_on(unfinished, text, tmp_path):
    other = tmp_path / "moved.txt"
    other.write_text(text.read_text())
    change(unfinished, str(text), str(other))
    assert run.resume(unfinished) == 0


def test_without_a_checkpoint_that_can_be_read_nothing_is_replaced(unfinished, capsys):
    for path in (unfinished / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-30])
    before = contents(unfinished)
    capsys.readouterr()
    assert run.resume(unfinished) == 2
    err = capsys.readouterr().err
    assert "no checkpoint of the run can be read; " in err and "Traceback" not in err
    assert contents(unfinished) == before


@pytest.mark.parametrize("command", ["generate", "evaluate", "describe", "resume"])
def test_sizes_that_no_machine_holds_are_refused_by_whatever_reads_a_run(begin, capsys, command):
    _, folder = begin("run", "trainer.max_steps=1")
    (folder / "summary.json").unlink()
    change(folder, "  layers: 2", "  layers: 100000000")
    capsys.readouterr()
    code = (
        run.resume(folder)
        if command == "resume"
        else cli.main([command, str(folder), *PROMPT * (command == "generate")])
    )
    assert code == 2
    assert re.search(
        r"model\.layers: must be at most 10,000 blocks; got 100000000|model\.layers was 2", capsys.readouterr().err
    )


def test_weights_beyond_the_memory_are_not_built(begin, monkeypatch):
    _, folder = begin("run", "trainer.max_steps=1")
    monkeypatch.setattr("xformer_kit.config.size._memory", lambda trainer: (2**20, "this machine"))
    monkeypatch.setattr("xformer_kit.config.size._suspicious", lambda config: True)
    load(folder)  # some 46 KB
    monkeypatch.setattr("xformer_kit.config.size._memory", lambda trainer: (2**12, "this machine"))
    with pytest.raises(ConfigError, match=r"model: its weights need about 0 GiB, and this machine has 0 GiB"):
        load(folder)


def test_rows_that_were_lost_before_a_resume_are_named_once(unfinished, capsys):
    (unfinished / "checkpoints" / "last.ckpt").unlink()  # from step 15 of 20 on
    file = unfinished / "metrics.csv"
    kept = file.read_text().splitlines(keepends=True)[:-8]
    file.write_text("".join(kept))
    capsys.readouterr()
    assert run.resume(unfinished) == 0
    said = f"{file}: 3 of the 15 rows up to the checkpoint are missing.\n"
    assert capsys.readouterr().err.count(said) == 1
    assert [row.split(",")[0] for row in file.read_text().splitlines()[1:]] == [
        *map(str, range(1, 13)),
        *map(str, range(16, 21)),
    ]
    (unfinished / "summary.json").unlink()
    assert run.resume(unfinished) == 0
    assert "rows up to" not in capsys.readouterr().err
