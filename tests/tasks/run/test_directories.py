"""Runs never share a directory: what another process does in one is left alone."""

import multiprocessing
import os
import time

import pytest
import yaml
from driving import environments

from tasks.run import processes, ranks, start, train
from tasks.run.exit_codes import NoRun
from tasks.run.hydra_app import claim_directory
from tasks.run.job import Job
from tasks.run.start import start_run
from tasks.run.train import train_run
from xformer_kit import compose
from xformer_kit.config import config_yaml, read_config


def test_runs_of_the_same_second_get_directories_of_their_own(tmp_path):
    taken = [claim_directory(tmp_path / "2026-11-20_12-00-00") for _ in range(3)]
    assert [path.name for path in taken] == [
        "2026-11-20_12-00-00",
        "2026-11-20_12-00-00_2",
        "2026-11-20_12-00-00_3",
    ]


def test_a_directory_in_which_a_run_goes_on_is_refused_and_left_alone(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("seed: 5\n")
    (tmp_path / "metrics.csv").write_text("step\n")
    with processes.run_lock(tmp_path):
        assert start_run(compose(["logger=none"]), tmp_path) == 2
    assert capsys.readouterr().err.startswith(
        f"hydra.run.dir: {tmp_path} is being trained by another process."
    )
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == {"seed": 5}
    assert (tmp_path / "metrics.csv").exists()


def test_a_config_that_was_changed_under_a_run_is_not_trained(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("seed: 5\n")
    assert train_run(Job(tmp_path, digest="that of another config")) == 2
    assert "another process began a run" in capsys.readouterr().err


def test_keys_in_another_order_are_the_same_config(tmp_path):
    config = compose(["logger=none"])
    (tmp_path / "config.yaml").write_text(config_yaml(dict(reversed(config.items()))))
    assert train.config_digest(read_config(tmp_path)) == train.config_digest(config)


@pytest.mark.parametrize("there", [False, True])
def test_a_run_whose_config_proves_wrong_leaves_nothing(tmp_path, capsys, config, there):
    wrong = config("data.seq_len=100000")
    run_dir = tmp_path / "junk"
    if there:
        run_dir.mkdir()
    assert start_run(wrong, run_dir) == 2
    assert capsys.readouterr().err
    assert run_dir.exists() == there
    assert not there or not list(run_dir.iterdir())


def test_a_directory_with_something_in_it_is_left_as_it_is(tmp_path, config):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("of the user")
    assert start_run(config("data.seq_len=100000"), tmp_path / "mine") == 2
    assert (tmp_path / "mine" / "notes.txt").read_text() == "of the user"


def test_what_another_process_began_meanwhile_is_not_removed(tmp_path, config, monkeypatch):
    mine, other = config("data.seq_len=100000"), config("seed=5")

    def meanwhile(_config, job):
        start._new_directory(other, job.run_dir, ())
        return 2

    monkeypatch.setattr(start, "train_in_processes", meanwhile)
    assert start_run(mine, tmp_path / "both") == 2
    assert yaml.safe_load((tmp_path / "both" / "config.yaml").read_text())["seed"] == 5


def _join(environment: dict[str, str], path, full: bool, told) -> None:
    os.environ.update(environment)

    def begin() -> None:
        if full:
            raise NoRun("holds a run")
        time.sleep(0.5)  # a slow disk
        (path / "config.yaml").touch()

    try:
        agreed = ranks.agree_on(path, begin)
        told.put((ranks.rank(), (agreed / "config.yaml").exists()))
    except NoRun as error:
        told.put((ranks.rank(), str(error)))


@pytest.mark.parametrize("full", [False, True])
def test_ranks_go_on_once_the_first_has_begun_the_run(tmp_path, full):
    """They read there what they train; where it cannot begin, nobody waits for it."""
    context = multiprocessing.get_context("forkserver")
    told = context.Manager().Queue()
    ranks = [
        context.Process(target=_join, args=(each, tmp_path, full, told))
        for each in environments(tmp_path)
    ]
    for each in ranks:
        each.start()
    said = dict(told.get(timeout=60) for _ in ranks)
    for each in ranks:
        each.join()
    refused = {
        0: "holds a run",
        1: "hydra.run.dir: the first rank could not start the run; see its message.",
    }
    assert said == (refused if full else {0: True, 1: True})
