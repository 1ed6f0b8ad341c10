"""Runs never share a directory: no run changes files of a directory that another process uses."""

import multiprocessing
import os
import time

import pytest
import yaml
from train_processes import rank_environments

from tasks.process import processes, ranks
from tasks.process.exit_codes import NoRun
from tasks.process.job import Job
from tasks.run import start, train
from tasks.run.hydra_app import claim_directory
from tasks.run.start import start_run
from tasks.run.train import train_run
from xformer_kit import compose
from xformer_kit.config import config_yaml, read_config


def test_runs_of_the_same_second_get_different_directories(tmp_path):
    first = tmp_path / "2026-11-20_12-00-00"
    claimed = [claim_directory(first, "", False) for _ in range(3)]
    names = ["2026-11-20_12-00-00", "2026-11-20_12-00-00_2", "2026-11-20_12-00-00_3"]
    assert claimed == [(tmp_path / name, False) for name in names]


def test_a_job_that_has_returned_to_a_queue_gets_its_directory_again(tmp_path):
    first, second = tmp_path / "0", tmp_path / "0_2"
    assert claim_directory(first, "100_0", False) == (first, False)
    assert claim_directory(first, "101_0", False) == (second, False)
    assert claim_directory(first, "100_0", False) == (first, True)
    assert claim_directory(first, "102_0", True) == (first, False)  # the line names it


def test_a_directory_whose_run_is_being_trained_is_refused_and_unchanged(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("seed: 5\n")
    (tmp_path / "metrics.csv").write_text("step\n")
    with processes.run_lock(tmp_path):
        assert start_run(compose(["logger=none"]), tmp_path) == 2
    assert capsys.readouterr().err.startswith(
        f"hydra.run.dir: {tmp_path} is being trained by another process."
    )
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == {"seed": 5}
    assert (tmp_path / "metrics.csv").exists()


def test_a_config_that_another_process_replaced_is_not_trained(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(config_yaml(compose(["seed=5"])))
    assert train_run(Job(tmp_path, digest="that of another config")) == 2
    assert "another process began a run" in capsys.readouterr().err


def test_keys_in_another_order_are_the_same_config(tmp_path):
    config = compose(["logger=none"])
    (tmp_path / "config.yaml").write_text(config_yaml(dict(reversed(config.items()))))
    assert train.config_digest(read_config(tmp_path)) == train.config_digest(config)


@pytest.mark.parametrize("existed", [False, True])
def test_a_run_whose_config_is_wrong_leaves_no_files(tmp_path, capsys, config, existed):
    wrong = config("data.seq_len=100000")
    run_dir = tmp_path / "junk"
    if existed:
        run_dir.mkdir()
    assert start_run(wrong, run_dir) == 2
    assert capsys.readouterr().err
    assert run_dir.exists() == existed
    assert not existed or not list(run_dir.iterdir())


def test_a_directory_with_other_files_is_not_cleared(tmp_path, config):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("of the user")
    assert start_run(config("data.seq_len=100000"), tmp_path / "mine") == 2
    assert (tmp_path / "mine" / "notes.txt").read_text() == "of the user"


@pytest.mark.parametrize("name", ["metrics.csv", "norms.csv"])
def test_a_new_run_removes_the_tables_of_one_that_left_no_checkpoint(tmp_path, config, name):
    """Also a table that the new run does not write itself, such as that of callbacks.norms."""
    (tmp_path / ".lock").touch()
    (tmp_path / name).write_text("step\n50\n")
    assert start_run(config("data.seq_len=100000"), tmp_path) == 2
    assert not (tmp_path / name).exists()


def test_a_run_that_another_process_started_meanwhile_is_not_removed(tmp_path, config, monkeypatch):
    own, other = config("data.seq_len=100000"), config("seed=5")

    def start_another_run(_config, job, is_new):
        start._create_run_directory(other, job)
        return 2

    monkeypatch.setattr(start, "train_in_processes", start_another_run)
    assert start_run(own, tmp_path / "both") == 2
    assert yaml.safe_load((tmp_path / "both" / "config.yaml").read_text())["seed"] == 5


def _share_directory(environment: dict[str, str], path, fails: bool, queue) -> None:
    os.environ.update(environment)

    def create() -> None:
        if fails:
            raise NoRun("holds a run")
        time.sleep(0.5)  # a slow disk
        (path / "config.yaml").touch()

    try:
        shared = ranks.share_run_directory(path, create)
        queue.put((ranks.rank(), (shared / "config.yaml").exists()))
    except NoRun as error:
        queue.put((ranks.rank(), str(error)))


@pytest.mark.parametrize("fails", [False, True])
def test_ranks_continue_once_rank_0_has_created_the_run(tmp_path, fails):
    """They read the config there. If rank 0 fails, no rank waits for it."""
    context = multiprocessing.get_context("forkserver")
    queue = context.Manager().Queue()
    ranks = [
        context.Process(target=_share_directory, args=(process, tmp_path, fails, queue))
        for process in rank_environments(tmp_path)
    ]
    for process in ranks:
        process.start()
    per_rank = dict(queue.get(timeout=60) for _ in ranks)
    for process in ranks:
        process.join()
    refused = {
        0: "holds a run",
        1: "hydra.run.dir: the first rank could not start the run; see its message.",
    }
    assert per_rank == (refused if fails else {0: True, 1: True})
