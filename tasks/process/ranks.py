"""The ranks of a run: rank, number of ranks, the store that they share, and exchanges of values
outside of training.

Each rank trains the model, or its part of a sharded one, on a slice of every batch. A launcher
starts the ranks and sets environment variables with rank and count: torchrun, SLURM, or a worker
(tasks/run/worker.py).
"""

import errno
import json
import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tasks import Facts
from tasks.process.exit_codes import NoRun
from xformer_kit.launcher import has_launcher

STORE_TIMEOUT = timedelta(seconds=300)


def rank() -> int:
    """Rank of this process; 0 if no launcher started several."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", 0))) if has_launcher() else 0


def world() -> tuple[int, int] | None:
    """(ranks on this machine, machines) if a launcher started several processes, else None."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        return local, int(os.environ["WORLD_SIZE"]) // local
    if has_launcher():
        machines = int(os.environ.get("SLURM_NNODES", 1))
        return int(os.environ["SLURM_NTASKS"]) // machines, machines
    return None


def count() -> int:
    """Number of ranks; 1 if no launcher started several."""
    return math.prod(world() or (1, 1))


def report_to_launcher(text: str) -> None:
    """Writes a rank's last message to the file in which torchrun expects it. torchrun prints that
    of the first rank that failed.
    """
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with suppress(OSError):
            message = {"message": text, "extraInfo": {"timestamp": str(int(time.time()))}}
            Path(file).write_text(json.dumps({"message": message}), encoding="utf-8")


def store_in_agent() -> bool:
    """Whether the launcher's agent hosts the shared store; otherwise rank 0 does."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


@cache
def store() -> Any:
    """The key-value store shared by all ranks, used before the process group exists."""
    from torch.distributed import TCPStore

    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if address is None or port is None:
        from lightning.fabric.plugins.environments import SLURMEnvironment

        address, port = SLURMEnvironment().main_address, str(SLURMEnvironment().main_port)
    in_agent = store_in_agent()
    if not in_agent and rank() == 0:
        check_ports(address, int(port))
    return TCPStore(
        address,
        int(port) + (not in_agent),
        is_master=not in_agent and rank() == 0,
        timeout=STORE_TIMEOUT,
        wait_for_workers=False,
    )


def check_ports(address: str, port: int) -> None:
    """Raises NoRun if another process uses the port at which the ranks meet, or the next one, at
    which they exchange messages before that.
    """
    for used in (port, port + 1):
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind((address, used))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise NoRun(
                        f"Port {used} of {address}, at which the ranks meet, is in use. Set"
                        " MASTER_PORT to another, of which the next is free too."
                    ) from None


class DataRank(NamedTuple):
    """The place of a process among those that read different examples, and their number. Ranks that
    compute parts of one model on the same examples have the same place.
    """

    rank: int
    ranks: int

    @classmethod
    def of(cls, trainer: Any) -> "DataRank":
        """That of a rank of a trainer, by its strategy."""
        found = trainer.distributed_sampler_kwargs  # None for one device
        return cls(found["rank"], found["num_replicas"]) if found else cls(0, 1)

    @classmethod
    def of_generation(cls, task: Any) -> "DataRank":
        """That of a rank when texts are generated. The ranks of a sharded model generate all texts
        together: each text has its own number of steps, and every step needs all ranks.
        """
        return cls(0, 1) if task.is_sharded else cls.of(task.trainer)


def all_gather(value: Any, world_size: int) -> list[Any]:
    """Returns the values of all ranks, in the order of the ranks."""
    values = [value] * world_size
    if world_size > 1:
        import torch

        torch.distributed.all_gather_object(values, value)
    return values


def rank_timeout(trainer: Facts) -> float | None:
    """trainer.rank_timeout in seconds; None: no limit."""
    from xformer_kit.config.options.trainer_schema import OURS

    return trainer.get("rank_timeout", OURS["rank_timeout"].default)


def lost_connection(error: BaseException) -> bool:
    """Whether an error is that of a collective whose other ranks ended."""
    return world() is not None and any(
        word in str(error).lower() for word in ("connection", "peer", "nccl", "gloo")
    )


def share_run_directory(run_dir: Path, create: Callable[[], None]) -> Path:
    """Returns rank 0's run directory on all ranks: the times in their names may differ.
    Removes this rank's own directory if it is empty.

    Rank 0 calls `create()` before it shares the directory, in which the other ranks read the
    config. If that fails, it raises the error, and the others raise NoRun, as all do if a rank does
    not start in STORE_TIMEOUT.
    """
    from torch.distributed import DistError
    from torch.distributed.elastic.utils.store import synchronize

    error_of_create = None
    if rank() == 0:
        try:
            create()
        except Exception as error:
            error_of_create = error
    own_path = "" if error_of_create else str(run_dir.resolve())
    # Rank 0, which may host the store, waits until all have read.
    seconds = STORE_TIMEOUT.total_seconds()
    try:
        paths = synchronize(store(), own_path.encode(), rank(), count(), "xformer/run_dir", seconds)
    except DistError:
        raise NoRun(
            f"Not all of the {count()} ranks started the run in {seconds:.0f} s; rank {rank()} did."
            " With SLURM, start them with srun in the script of sbatch, or set #SBATCH --ntasks=1."
        ) from None
    if not (path := paths[0].decode()):
        raise error_of_create or NoRun(
            "hydra.run.dir: the first rank could not start the run; see its message."
        )
    shared = Path(path)
    if shared != run_dir.resolve() and run_dir.is_dir() and not any(run_dir.iterdir()):
        run_dir.rmdir()
    return shared
