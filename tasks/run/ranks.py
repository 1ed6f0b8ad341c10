"""The ranks of a run: which processes train it together, and what they exchange before and next to
training.

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

ANSWER = timedelta(seconds=300)  # how long a rank waits for the store of all


def joined() -> bool:
    """Whether torchrun or SLURM has already started one process per device."""
    return "TORCHELASTIC_RUN_ID" in os.environ or (
        "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_NTASKS", 1)) > 1
    )


def rank() -> int:
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", 0))) if joined() else 0


def world() -> tuple[int, int] | None:
    """(ranks on this machine, machines) if a launcher started several processes, else None."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        return here, int(os.environ["WORLD_SIZE"]) // here
    if joined():
        machines = int(os.environ.get("SLURM_NNODES", 1))
        return int(os.environ["SLURM_NTASKS"]) // machines, machines
    return None


def count() -> int:
    """Number of ranks; 1 if no launcher started several."""
    return math.prod(world() or (1, 1))


def reply(text: str) -> None:
    """Pass the message to torchrun, which shows the one of the rank that ended first; that need not
    be the first rank.
    """
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with suppress(OSError):
            said = {"message": text, "extraInfo": {"timestamp": str(int(time.time()))}}
            Path(file).write_text(json.dumps({"message": said}), encoding="utf-8")


def hosted() -> bool:
    """Whether the store of all ranks is in the agent that started them, else in the first rank."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


@cache
def store() -> Any:
    """The store of all ranks of a run, by which they agree before they can exchange tensors."""
    from torch.distributed import TCPStore

    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if address is None or port is None:
        from lightning.fabric.plugins.environments import SLURMEnvironment

        address, port = SLURMEnvironment().main_address, str(SLURMEnvironment().main_port)
    master = not hosted() and rank() == 0
    return TCPStore(
        address,
        int(port) + (not hosted()),
        is_master=master,
        timeout=ANSWER,
        wait_for_workers=False,
    )


def gathered(value: Any, world_size: int) -> list[Any]:
    """The values of all ranks."""
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
    """Whether an error is that of an exchange with another rank, which has ended."""
    text = str(error).lower()
    return world() is not None and any(
        word in text for word in ("connection", "peer", "nccl", "gloo")
    )


def agree_on(run_dir: Path, begin: Callable[[], None]) -> Path:
    """The first rank's directory, for all ranks: their clocks may have named different ones.
    Removes this rank's own if it is empty.

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
    said = synchronize(store(), own.encode(), rank(), count(), "xformer/run_dir", ANSWER.seconds)
    if not (named := said[0].decode()):
        raise fault or NoRun(
            "hydra.run.dir: the first rank could not start the run; see its message."
        )
    agreed = Path(named)
    if agreed != run_dir.resolve() and run_dir.is_dir() and not any(run_dir.iterdir()):
        run_dir.rmdir()
    return agreed
