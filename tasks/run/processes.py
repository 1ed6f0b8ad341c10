"""The processes of a run: this one, or workers that read the saved config; argv is never run again.

A worker is `python -m tasks.run.worker`.
"""

import ctypes
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from tasks import Config, Facts
from tasks.run.exit_codes import SIGNALS, NoRun
from tasks.run.job import Job

ANSWER = timedelta(seconds=300)  # how long a rank waits for the store of all

_training: list[Callable[[int], None]] = []  # how to stop the runs that train for this process


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


def ranks() -> int:
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
    said = synchronize(store(), own.encode(), rank(), ranks(), "xformer/run_dir", ANSWER.seconds)
    if not (named := said[0].decode()):
        raise fault or NoRun(
            "hydra.run.dir: the first rank could not start the run; see its message."
        )
    agreed = Path(named)
    if agreed != run_dir.resolve() and run_dir.is_dir() and not any(run_dir.iterdir()):
        run_dir.rmdir()
    return agreed


def end_with_parent(parent: int | None) -> None:
    """End this process when its parent does: through the kernel on Linux, else by checking twice a
    second.

    Workers of an elastic agent have a session of their own, so nothing else would end them after a
    kill -9.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)  # 1: PR_SET_PDEATHSIG
    else:
        threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    if parent not in (None, os.getppid()):  # it died before the line above
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def silence() -> None:
    """Discard this process's output to the screen."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(nowhere, fd)


@contextmanager
def run_lock(run_dir: Path) -> Iterator[None]:
    """Lock a run's directory: two processes that train in it at once would corrupt it. Raises NoRun
    for the second.
    """
    if rank() != 0 or sys.platform == "win32":
        yield
        return
    import fcntl

    with open(run_dir / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NoRun(
                f"hydra.run.dir: {run_dir} is being trained by another process. Wait for it, or"
                " stop it first."
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


def device_count(trainer: Config) -> int:
    """Number of processes on this machine for a trainer's devices."""
    import torch

    devices, accelerator = trainer.get("devices", 1), trainer.get("accelerator", "auto")
    if isinstance(devices, list):
        return len(devices)
    on_gpu = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    if devices in ("auto", -1, "-1"):
        return torch.cuda.device_count() if on_gpu else 1
    return int(devices)


def import_environment() -> dict[str, str]:
    """Variables with which a Python process imports this package and nothing from its current
    directory.

    `python -m` and `python -c`, with which workers, fork servers and launchers start, put the
    current directory first on
    sys.path: in a directory that was downloaded, its torch.py would run. PYTHONSAFEPATH prevents
    it, and PYTHONPATH names the checkout, which only train.py's own location names otherwise. An
    empty entry of PYTHONPATH is the current directory.
    """
    root = str(Path(__file__).resolve().parents[2])
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    own = [] if root in given or root in sysconfig.get_paths().values() else [root]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join([*own, *given])}


def worker_command(job: Job, count: int) -> list[str]:
    """The command that trains a run for this process, in `count` processes."""
    told = replace(job, parent=os.getpid()).arguments()
    return [sys.executable, "-m", "tasks.run.worker", *told, str(count)]


def launch(job: Job, count: int) -> int:
    """Train a run in `count` worker processes, pass signals on to them, and return the exit
    code.
    """
    # A process group of its own: Ctrl-C reaches only this process, which passes it on once.
    child = subprocess.Popen(
        worker_command(job, count), env=os.environ | import_environment(), process_group=0
    )
    with forwarding_signals(child.send_signal):
        code = child.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def forwarding_signals(send: Callable[[int], None]) -> Iterator[None]:
    """Pass the signals that stop a run on to the process that trains it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda number, _frame: send(number)) for number in SIGNALS
    }
    _training.append(send)
    try:
        yield
    finally:
        _training.remove(send)
        for number, handler in before.items():
            signal.signal(number, handler)


@cache
def end_with_launcher() -> None:
    """End this process when the launcher ends that started it for the jobs of a multirun, as joblib
    does; joblib's own workers would continue to train after it.
    """
    launcher = multiprocessing.parent_process()
    if launcher is not None and sys.platform != "win32":
        threading.Thread(
            target=_watch_launcher, args=(launcher.pid, os.getppid()), daemon=True
        ).start()


def _watch_launcher(launcher: int, parent: int) -> None:
    from xformer_kit.data.training_data import alive  # with torch, which --help does not need

    while os.getppid() == parent and alive(launcher):
        time.sleep(0.5)
    for send in _training:  # the run saves its state first
        with suppress(ProcessLookupError):
            send(signal.SIGTERM)
    while _training:
        time.sleep(0.1)
    os._exit(128 + signal.SIGTERM)
