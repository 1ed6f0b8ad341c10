"""The ranks of a run: rank, world size, the shared store, and exchanges outside of training.

Each rank trains with the whole model and a slice of every batch. torchrun, SLURM, or the worker of
a run with several devices has started them; variables of these launchers hold rank and count.
"""

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from tasks import Facts
from tasks.run.exit_codes import NoRun

STORE_TIMEOUT = timedelta(seconds=300)  # of the store shared by all ranks


def has_launcher() -> bool:
    """Whether torchrun or SLURM has already started one process per device."""
    return "TORCHELASTIC_RUN_ID" in os.environ or (
        "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_NTASKS", 1)) > 1
    )


def rank() -> int:
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", 0))) if has_launcher() else 0


def world() -> tuple[int, int] | None:
    """(ranks on this machine, machines) if a launcher started several processes, else None."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        return here, int(os.environ["WORLD_SIZE"]) // here
    if has_launcher():
        machines = int(os.environ.get("SLURM_NNODES", 1))
        return int(os.environ["SLURM_NTASKS"]) // machines, machines
    return None


def count() -> int:
    """Number of ranks; 1 if no launcher started several."""
    return math.prod(world() or (1, 1))


def report_to_launcher(text: str) -> None:
    """Write the message for torchrun, which prints that of the first rank that failed."""
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with suppress(OSError):
            message = {"message": text, "extraInfo": {"timestamp": str(int(time.time()))}}
            Path(file).write_text(json.dumps({"message": message}), encoding="utf-8")


def store_in_agent() -> bool:
    """Whether the launcher's agent hosts the shared store; otherwise rank 0 does."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


@cache
def store() -> Any:
    """Returns the store shared by all ranks, used before the process group exists."""
    from torch.distributed import TCPStore

    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if address is None or port is None:
        from lightning.fabric.plugins.environments import SLURMEnvironment

        address, port = SLURMEnvironment().main_address, str(SLURMEnvironment().main_port)
    master = not store_in_agent() and rank() == 0
    return TCPStore(
        address,
        int(port) + (not store_in_agent()),
        is_master=master,
        timeout=STORE_TIMEOUT,
        wait_for_workers=False,
    )


def gathered(value: Any, world_size: int) -> list[Any]:
    """Returns the values of all ranks, in the order of the ranks."""
    found = [value]
    if world_size > 1:
        import torch

        found = found * world_size
        torch.distributed.all_gather_object(found, value)
    return found


def rank_timeout(trainer: Facts) -> float | None:
    from xformer_kit.config.trainer_schema import OURS

    return trainer.get("rank_timeout", OURS["rank_timeout"].default)


def lost_connection(error: BaseException) -> bool:
    """Whether an error was caused by another rank that ended."""
    text = str(error).lower()
    return world() is not None and any(
        word in text for word in ("connection", "peer", "nccl", "gloo")
    )


def agree_on(run_dir: Path, begin: Callable[[], None]) -> Path:
    """Returns rank 0's run directory on all ranks: the times in their names may differ.
    Removes this rank's own directory if it is empty.

    The first rank starts the run before it shares the directory, where the others read the config.
    If that fails, it raises the error, and the others raise NoRun.
    """
    from torch.distributed.elastic.utils.store import synchronize

    fault = None
    if rank() == 0:
        try:
            begin()
        except Exception as error:
            fault = error
    own = "" if fault else str(run_dir.resolve())
    # The store may be in the first rank, which waits until all have read.
    paths = synchronize(
        store(), own.encode(), rank(), count(), "xformer/run_dir", STORE_TIMEOUT.seconds
    )
    if not (path := paths[0].decode()):
        raise fault or NoRun(
            "hydra.run.dir: the first rank could not start the run; see its message."
        )
    agreed = Path(path)
    if agreed != run_dir.resolve() and run_dir.is_dir() and not any(run_dir.iterdir()):
        run_dir.rmdir()
    return agreed
