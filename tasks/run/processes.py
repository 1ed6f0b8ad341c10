"""The processes in which a run is trained.

| a run | trains in | because |
| --- | --- | --- |
| started by torchrun or SLURM | this process, one of its ranks | the launcher has started them |
| on one device | this process | nothing is imported twice |
| on several devices | ranks that a worker starts | each device needs a process |
| of a multirun or a study | a fork of the fork server | imports take longer than small runs |
| of a multirun or a study, with a GPU or not on Linux | a worker | CUDA does not survive a fork |

A worker is `python -m tasks.run.worker RUN JOB COUNT`. It reads the saved config; the command line
is never run again. No variable of the environment is ours: a `Job` holds a
process's arguments.
`tasks.run.start.train_in_processes` chooses. Only Hydra's launchers, which run the jobs of a
multirun, and `xformer reproduce`, which runs a command line as a user does, start other processes.
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
from tasks.run.exit_codes import SIGNALS, NoRun
from tasks.run.job import Job
from tasks.run.ranks import rank

_signal_senders: list[Callable[[int], None]] = []  # of the child processes that train


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
    arguments = replace(job, parent=os.getpid()).arguments()
    return [sys.executable, "-m", "tasks.run.worker", *arguments, str(count)]


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
    _signal_senders.append(send)
    try:
        yield
    finally:
        _signal_senders.remove(send)
        for number, handler in before.items():
            signal.signal(number, handler)


@cache
def end_with_launcher() -> None:
    """End this process when the launcher ends that started it for the jobs of a multirun, as joblib
    does; joblib's workers would continue to train without it.
    """
    launcher = multiprocessing.parent_process()
    if launcher is not None and sys.platform != "win32":
        threading.Thread(
            target=_watch_launcher, args=(launcher.pid, os.getppid()), daemon=True
        ).start()


def _watch_launcher(launcher: int, parent: int) -> None:
    from xformer_kit.data.training_data import is_running  # with torch, which --help does not need

    while os.getppid() == parent and is_running(launcher):
        time.sleep(0.5)
    for send in _signal_senders:  # the run saves its state first
        with suppress(ProcessLookupError):
            send(signal.SIGTERM)
    while _signal_senders:
        time.sleep(0.1)
    os._exit(128 + signal.SIGTERM)
