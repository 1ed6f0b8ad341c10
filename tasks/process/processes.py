"""The processes in which a run is trained, how they start and how they end.

| a run | trains in | because |
| --- | --- | --- |
| started by torchrun or SLURM | this process, one of its ranks | the launcher has started them |
| on one device | this process | nothing is imported twice |
| on several devices | ranks that a worker starts | each device needs a process |
| of a multirun or a study | a fork of the fork server | imports take longer than small runs |
| of a multirun or a study, with a GPU or not on Linux | a worker | CUDA does not survive a fork |

A worker is `python -m tasks.run.worker RUN_DIR JOB COUNT`. It reads the saved config; the command
line is not run again. Its arguments are a `Job`, not environment variables.
`tasks.run.start.train_in_processes` chooses the row of the table. Only two other places start
processes: Hydra's launchers, which run the jobs of a multirun, and `xformer reproduce`, which runs
a command line.
"""

import ctypes
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
from functools import cache
from pathlib import Path

from tasks import Config
from tasks.process.exit_codes import SIGNALS, NoRun
from tasks.process.job import Job
from tasks.process.ranks import rank
from xformer_kit.files.saved_files import check_stays_inside

# Functions that send a signal to the child processes that train now.
_signal_senders: list[Callable[[int], None]] = []


def end_with_parent(parent: int | None) -> None:
    """Makes this process end when its parent does: by the kernel on Linux, otherwise by a thread
    that checks twice a second. parent: process id of the parent; None: not known.

    Workers of an elastic agent have their own session, so nothing else would end them after a
    kill -9 of the agent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)  # 1: PR_SET_PDEATHSIG
    else:
        threading.Thread(target=_exit_after, args=(os.getppid(),), daemon=True).start()
    if parent not in (None, os.getppid()):  # it died before the lines above
        os._exit(1)


def _exit_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def discard_output() -> None:
    """Redirects this process's stdout and stderr to the null device."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(null_device, fd)


@contextmanager
def run_lock(run_dir: Path) -> Iterator[None]:
    """A context that locks a run's directory, since two processes that train in it would corrupt
    its files. Raises NoRun if another process holds the lock, and ConfigError if a link leads out
    of the directory. Only rank 0 locks.
    """
    if rank() != 0 or sys.platform == "win32":
        yield
        return
    import fcntl

    check_stays_inside(run_dir)
    with open(run_dir / ".lock", "a") as file:  # it stays as it is
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
    """Number of processes on this machine, one per device, for trainer.devices."""
    import torch

    devices, accelerator = trainer.get("devices", 1), trainer.get("accelerator", "auto")
    if isinstance(devices, list):
        return len(devices)
    on_gpu = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    if devices in ("auto", -1, "-1"):
        return torch.cuda.device_count() if on_gpu else 1
    return int(devices)


def import_environment() -> dict[str, str]:
    """Environment variables with which a Python process imports this package and nothing from its
    current directory.

    `python -m` and `python -c`, with which workers, fork servers and launchers start, put the
    current directory first on sys.path: in a downloaded directory, its torch.py would run.
    PYTHONSAFEPATH prevents it. PYTHONPATH names the checkout, which train.py finds by its own
    location. Empty entries of PYTHONPATH, which stand for the current directory, are removed.
    """
    root = str(Path(__file__).resolve().parents[2])
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if root not in entries and root not in sysconfig.get_paths().values():
        entries.insert(0, root)
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(entries)}


def worker_command(job: Job, count: int) -> list[str]:
    """The command of a worker that trains a run in `count` processes and ends with this process."""
    arguments = replace(job, parent=os.getpid()).arguments()
    return [sys.executable, "-m", "tasks.run.worker", *arguments, str(count)]


def launch(job: Job, count: int) -> int:
    """Trains a run in `count` worker processes, forwards signals to them, and returns the exit
    code.
    """
    # In its own process group: Ctrl-C reaches only this process, which forwards it once.
    child = subprocess.Popen(
        worker_command(job, count), env=os.environ | import_environment(), process_group=0
    )
    with forward_signals(child.send_signal):
        code = child.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def forward_signals(send: Callable[[int], None]) -> Iterator[None]:
    """A context in which signals that stop a run are sent to the process that trains it; `send`
    sends one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handlers = {
        number: signal.signal(number, lambda number, _frame: send(number)) for number in SIGNALS
    }
    _signal_senders.append(send)
    try:
        yield
    finally:
        _signal_senders.remove(send)
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


@cache
def end_with_launcher() -> None:
    """Makes this process end when Hydra's launcher ends, if a launcher such as joblib started it
    for the jobs of a multirun: joblib's workers would continue to train without it.
    """
    launcher = multiprocessing.parent_process()
    if launcher is not None and sys.platform != "win32":
        threading.Thread(
            target=_exit_after_launcher, args=(launcher.pid, os.getppid()), daemon=True
        ).start()


def _exit_after_launcher(launcher: int, parent: int) -> None:
    """Waits until one of these processes ends, then stops the runs of this one and exits."""
    from xformer_kit.data.preparation.training_data import (
        is_running,  # with torch, which --help does not need
    )

    while os.getppid() == parent and is_running(launcher):
        time.sleep(0.5)
    for send in _signal_senders:  # the run saves its state first
        with suppress(ProcessLookupError):
            send(signal.SIGTERM)
    while _signal_senders:
        time.sleep(0.1)
    os._exit(128 + signal.SIGTERM)
