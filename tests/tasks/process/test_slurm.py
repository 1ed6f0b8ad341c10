"""Which processes of SLURM are ranks of one run. SLURM's variables are set by the test."""

import os
import socket
from datetime import timedelta

import pytest

from tasks.process import ranks
from tasks.process.exit_codes import NoRun
from tests.messages import messages
from xformer_kit import compose
from xformer_kit.config.faults.machine import run_faults


@pytest.fixture
def slurm(monkeypatch):
    """slurm(NTASKS=2, ...) sets variables; those of launchers that the tests run in are removed."""
    for name in [*os.environ]:
        if name.startswith(("SLURM_", "TORCHELASTIC_", "MASTER_")) or name in ("RANK",):
            monkeypatch.delenv(name)

    def set_variables(**values):
        for name, value in values.items():
            monkeypatch.setenv(f"SLURM_{name}", str(value))

    return set_variables


@pytest.mark.parametrize(
    ("variables", "world"),
    [
        ({}, None),
        ({"PROCID": 0, "NTASKS": 1}, None),
        ({"NTASKS": 4}, None),  # a shell of salloc
        ({"PROCID": 0, "NTASKS": 4, "JOB_NAME": "bash"}, None),  # srun --pty bash
        ({"PROCID": 3, "NTASKS": 4, "NNODES": 2, "JOB_NAME": "train"}, (2, 2)),
    ],
)
def test_a_process_is_a_rank_if_slurm_started_several(slurm, variables, world):
    slurm(**variables)
    assert ranks.world() == world
    assert ranks.has_launcher() == (world is not None)
    assert ranks.rank() == (variables["PROCID"] if world else 0)
    # One task starts its own processes, so that their number is checked before the run.
    config = compose([])
    config = config | {"trainer": {**config["trainer"], "devices": 3}}
    assert any("data.batch_size" in m for m in messages(run_faults(config))) == (world is None)


def test_tasks_that_do_not_start_are_a_sentence(slurm, monkeypatch, tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    slurm(PROCID=0, NTASKS=2, JOB_NAME="train")
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", str(port - 1))
    monkeypatch.setattr(ranks, "STORE_TIMEOUT", timedelta(seconds=0.2))
    ranks.store.cache_clear()
    try:
        with pytest.raises(NoRun, match=r"^Not all of the 2 ranks started the run in 0 s;"):
            ranks.share_run_directory(tmp_path, lambda: None)
    finally:
        ranks.store.cache_clear()


@pytest.mark.parametrize("next_port", [0, 1])
def test_a_port_in_use_is_a_sentence(slurm, monkeypatch, tmp_path, next_port):
    slurm(PROCID=0, NTASKS=2, JOB_NAME="train")
    with socket.socket() as other:
        other.bind(("localhost", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setenv("MASTER_ADDR", "localhost")
        monkeypatch.setenv("MASTER_PORT", str(port - next_port))
        ranks.store.cache_clear()
        with pytest.raises(NoRun, match=f"^Port {port} of localhost, .* is in use. Set"):
            ranks.share_run_directory(tmp_path, lambda: None)
