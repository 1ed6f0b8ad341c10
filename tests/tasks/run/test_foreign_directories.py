"""Directories that no run of ours wrote, or that somebody else changed: no file elsewhere is
written, nothing in them is replaced, and no command waits forever.
"""

import os
import random
import shutil
import signal
from pathlib import Path

import pytest
import torch

from tasks.checkpoints import checkpoints
from tasks.cli import main
from tasks.cli.comparison import compare_runs
from tasks.generation.translation import read_lines
from tasks.logging import summary
from tasks.process import processes
from tasks.process.exit_codes import NONFINITE, NoRun
from tasks.run.new_directory import check_new_directory
from tasks.run.resume import resume_run
from tasks.run.start import start_run
from tasks.study import state
from tests.tasks.command_lines import fault, output
from xformer_kit.checkpoint import DamagedError, read
from xformer_kit.config import config_yaml, read_config
from xformer_kit.data.tokenizer import load_tokenizer
from xformer_kit.files.saved_files import IN_PLACE, check_stays_inside, read_columns
from xformer_kit.registry import ConfigError


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "train.log"
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, which the tests copy."""
    from tests.tasks.conftest import TINY
    from tests.train_processes import text_file
    from xformer_kit import compose

    words = [*TINY, "schedule.warmup=0", "trainer.max_steps=1", "callbacks.norms.every=1"]
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        patch.setattr("tasks.modules.language_modeling.GENERATED_TOKENS", 8)
        config = compose([*words, f"data.path={text_file(tmp_path_factory)}"])
        assert start_run(config, home / "run") == 0
    return home / "run"


def test_a_tree_with_a_link_out_of_it_is_refused(tmp_path):
    """The reference follows each link by itself, in 100 random trees."""
    choose = random.Random(0)
    leads_out = 0
    for number in range(100):
        root = tmp_path / f"{number}"
        folders = [root, root / "a", root / "a" / "b"]
        folders[-1].mkdir(parents=True)
        paths = [folder / name for folder in folders for name in ("x", "y")]
        inside = True
        for path in paths:
            match choose.randrange(4):
                case 0:
                    path.write_text("text")
                case 1:  # to a path in the tree, which may be missing or a link
                    path.symlink_to(os.path.relpath(choose.choice(paths + folders), path.parent))
                case 2 if choose.random() < 0.3:
                    path.symlink_to(choose.choice([tmp_path, "/nowhere", "../" * 9 + "etc/hosts"]))
                    inside = False
        leads_out += not inside
        if inside:
            check_stays_inside(root)
        else:
            with pytest.raises(ConfigError, match="a link to"):
                check_stays_inside(root)
        (tmp_path / "link").symlink_to(root)
        if inside:
            check_stays_inside(tmp_path / "link")
        (tmp_path / "link").unlink()
    assert 20 < leads_out < 80


def test_a_run_with_a_link_out_of_it_is_not_trained(run, tmp_path, capsys):
    """Each file and folder of a run in turn, and those of other runs."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("secret")
    names = {str(path.relative_to(run)) for path in run.rglob("*")}
    names |= {"wandb", "tensorboard", "pictures", "wandb_id.txt", "profile.txt", "samples.csv"}
    names |= {"checkpoints/step_1.ckpt", "checkpoints/weights_1.pt", ".claim"}
    for name in sorted(names):
        evil = tmp_path / "evil"
        shutil.copytree(run, evil)
        is_folder = (evil / name).is_dir() or "." not in name
        if is_folder:
            shutil.rmtree(evil / name, ignore_errors=True)
        else:
            (evil / name).unlink(missing_ok=True)
        (evil / name).symlink_to(outside if is_folder else outside / "key")
        with pytest.raises(ConfigError) as refused, processes.run_lock(evil):
            pass
        assert str(refused.value).startswith(f"{evil / name}: must be a file or a directory of ")
        assert resume_run(evil, max_steps=9) == 2  # before the file outside is read
        assert capsys.readouterr().err == f"{refused.value}\n"
        if name == "pictures":
            assert str(evil / name) in fault(capsys, "plot", "curves", evil)
        assert contents(outside) == {(outside / "key").relative_to(outside): b"secret"}
        shutil.rmtree(evil)
    capsys.readouterr()


def test_the_server_that_a_run_names_is_printed_before_it_is_used(
    run, tmp_path, capsys, monkeypatch
):
    """It may be somebody else's, and receives the run's figures and the user's login."""
    monkeypatch.setattr("tasks.run.resume.train_in_processes", lambda config, job: 0)
    config = read_config(run)
    for uri in ("http://host:5000", None):
        copy = tmp_path / str(bool(uri))
        shutil.copytree(run, copy)
        logger = {"name": "mlflow", "tracking_uri": uri}
        (copy / "config.yaml").write_text(config_yaml(config | {"logger": logger}))
        assert resume_run(copy, max_steps=9) == 0
        line = (
            "The run's config.yaml names the server that receives its figures: http://host:5000\n"
        )
        assert capsys.readouterr().err == line * bool(uri)


def test_a_hard_link_of_a_run_changes_no_file_outside(run, tmp_path):
    """Files that are written in place are refused; a lock is not written."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("secret")
    evil = tmp_path / "evil"
    shutil.copytree(run, evil)
    for name in (".lock", ".claim"):
        (evil / name).unlink(missing_ok=True)
        os.link(outside / "key", evil / name)
    with processes.run_lock(evil), state.claim(evil):
        pass
    for name in [pattern.replace("*", "curves.png") for pattern in IN_PLACE]:
        (evil / name).parent.mkdir(exist_ok=True)
        (evil / name).unlink(missing_ok=True)
        os.link(outside / "key", evil / name)
        with pytest.raises(ConfigError, match="a hard link"), processes.run_lock(evil):
            pass
        (evil / name).unlink()
    assert contents(outside) == {(outside / "key").relative_to(outside): b"secret"}


def test_no_file_of_a_run_that_is_a_fifo_is_waited_for(run, tmp_path, capsys):
    readers = {
        "summary.json": lambda at: summary.read(at),
        "metrics.csv": lambda at: state.last_step(at) or read_columns(at / "metrics.csv"),
        "tokenizer.json": lambda at: load_tokenizer(at),
        "checkpoints/last.ckpt": lambda at: read(at / "checkpoints" / checkpoints.LAST),
        ".claimed": lambda at: state.claimed(at),
        "config.yaml": lambda at: output(capsys, "describe", at),
        "components.json": lambda at: output(capsys, "generate", at, "--prompt", "the"),
    }
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("a FIFO is waited for"))
    for name, reader in readers.items():
        evil = tmp_path / name.replace("/", "_")
        shutil.copytree(run, evil)
        (evil / name).unlink(missing_ok=True)
        os.mkfifo(evil / name)
        signal.alarm(20)
        try:
            reader(evil)
        except (ConfigError, DamagedError):
            pass
        finally:
            signal.alarm(0)
        with pytest.raises(ConfigError, match="a FIFO or a device"):
            check_stays_inside(evil)


def test_nothing_is_written_into_a_directory_that_resume_refuses(run, tmp_path, capsys):
    refused = tmp_path / "refused"
    shutil.copytree(run, refused)
    (refused / ".lock").touch()
    names = sorted(refused.rglob("*"))
    with processes.run_lock(refused):
        assert resume_run(refused, max_steps=12) == 2
    assert "is being trained by another process" in capsys.readouterr().err
    assert sorted(refused.rglob("*")) == names
    (refused / "speed.csv").unlink()
    os.mkfifo(refused / "speed.csv")
    assert resume_run(refused, max_steps=12) == 2
    assert "got a FIFO or a device" in capsys.readouterr().err
    assert sorted(refused.rglob("*")) == names


@pytest.mark.extended
def test_no_input_that_is_a_fifo_is_waited_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("mine.yaml", "x.txt", "x.json", "x.py"):
        os.mkfifo(name)
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("a FIFO is waited for"))
    signal.alarm(60)
    try:
        for words in (
            ["experiment=mine.yaml"],
            ["study=mine.yaml"],
            ["components=[x.py]"],
            ["tokenizer=pretrained", "tokenizer.path=x.json"],
            ["data=text", "data.path=x.txt"],
            ["attn=unknown"],  # a Python file here may have it
        ):
            assert words[-1].partition("=")[0] in fault(capsys, "train", *words)
        with pytest.raises(ConfigError, match="--input: must be a regular file"):
            read_lines("x.txt", "--input")
    finally:
        signal.alarm(0)


MINE = ("config.yaml", "metrics.csv", "tokenizer.json", "components.json", "notes/a.txt", ".git/x")
MINE += (".lock",)


@pytest.mark.parametrize("names", [MINE, *((name,) for name in MINE)])
def test_a_new_run_changes_no_directory_with_files_of_others(config, tmp_path, capsys, names):
    for name in names:
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text("of the user")
    before = contents(tmp_path)
    assert start_run(config(), tmp_path / "mine") == 2
    first = min(name.partition("/")[0] for name in names)
    assert capsys.readouterr().err == (
        f"hydra.run.dir: {tmp_path / 'mine'} holds files that no run wrote, such as {first};"
        " nothing is overwritten. Name a new directory, or one that is empty.\n"
    )
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "left",
    [(), (".claim",), (".claimed", ".asked"), (".lock", "config.yaml", ".config.yaml.7.new")],
)
def test_what_an_interrupted_start_left_is_used_again(tmp_path, left):
    for name in left:
        (tmp_path / name).touch()
    check_new_directory(tmp_path)


@pytest.mark.parametrize("at", ["file/x", "x" * 256, "file", "link"])
def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path, at):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "x")
    with pytest.raises(
        NoRun, match=r"^hydra.run.dir: .* cannot be created or written \(.*\)\. Name"
    ):
        check_new_directory(tmp_path / at)


def test_paths_of_any_length_are_one_sentence(capsys):
    name = "x" * 300
    for words in (
        ["train", f"resume={name}"],
        ["train", f"init_from={name}"],
        ["train", f"hydra.run.dir={name}"],
        ["train", f"data.cache={name}"],
        ["generate", name, "--prompt", "the"],
        ["compare", name, name],
        ["status", name],
        ["plot", "curves", name],
    ):
        assert name[:70] in fault(capsys, *words)


def test_the_data_of_a_run_without_a_summary_are_those_of_its_checkpoint(run, tmp_path, capsys):
    """A killed run is not evaluated on other data, and a diverged one is no seed of a run on
    other data.
    """
    killed, diverged = tmp_path / "killed", tmp_path / "diverged"
    for path in (killed, diverged):
        shutil.copytree(run, path)
        (path / "summary.json").unlink()
    text = Path(read_config(run)["data"]["path"])
    before = text.read_text()
    assert output(capsys, "evaluate", killed)[0] == 0
    text.write_text(f"{before} changed")
    try:
        assert fault(capsys, "evaluate", killed).startswith("data: the text must be the one that")
    finally:
        text.write_text(before)
    (diverged / "config.yaml").write_text(config_yaml(read_config(run) | {"seed": 7}))
    summary.write({"code": NONFINITE, "text": "", "step": 1}, diverged / summary.ENDED)
    assert len(compare_runs([run, diverged]).groups) == 1
    last = diverged / "checkpoints" / "last.ckpt"
    torch.save(torch.load(last) | {"data_fingerprint": "0" * 64}, last)
    assert len(compare_runs([run, diverged]).groups) == 2


def test_components_that_a_config_file_brings_are_named(tmp_path, monkeypatch, capsys):
    """The command line names its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tasks.run.start.start_run", lambda *_, **options: 0)
    (tmp_path / "x.py").touch()
    (tmp_path / "mine.yaml").write_text("components: [x.py]")
    words = ["train", "logger=none", "experiment=mine.yaml"]
    assert main(words) == 0
    line = "The config file brings components, whose code is run: x.py\n"
    assert capsys.readouterr().err.replace(f"{tmp_path}/", "") == line
    assert main([*words, "components=[x.py]"]) == 0
    assert capsys.readouterr().err == ""


def test_an_interrupted_command_is_one_sentence(monkeypatch, capsys):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("tasks.cli.compare.run", interrupted)
    assert output(capsys, "compare", "a", "b") == (130, "", "\nStopped by SIGINT.\n")
