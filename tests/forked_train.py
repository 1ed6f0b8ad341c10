"""Runs `python train.py ...` in a fork of a process with all imports: for tests of output and
files, not of how a process starts or ends. One such process serves all tests of a worker. The texts
that a run writes at a validation have 8 tokens instead of 96.
"""

import atexit
import io
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from multiprocessing import Pipe, forkserver
from multiprocessing.reduction import DupFd
from pathlib import Path

from tasks.process import fork_server

ROOT = Path(__file__).resolve().parents[1]
PRELOADED = [
    "tasks.run.hydra_app",
    "tasks.run.start",
    "tasks.run.training_process",
    "tasks.logging.sweep_table",
    "xformer_kit.study.plan",
    # Of the report of a study.
    "jinja2",
    "matplotlib.backends.backend_svg",
    "optuna",
    "scipy.stats",
    "torch.utils.flop_counter",
]


def without_repeated_keys(words: list[str]) -> list[str]:
    """Returns the words without those whose key is repeated later: a test appends its own overrides
    to those of its file.
    """
    last = {word.partition("=")[0]: at for at, word in enumerate(words)}
    return [word for at, word in enumerate(words) if last[word.partition("=")[0]] == at]


class ForkedTrain:
    """A running `python train.py`, with the methods of subprocess.Popen that the tests use."""

    def __init__(
        self,
        words: list[str],
        home: Path,
        environment: dict[str, str],
        script: Path = ROOT / "train.py",
    ):
        self.args = [str(script), *without_repeated_keys(words)]
        self.files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
        pipes = [DupFd(file.fileno()) for file in self.files]
        context = multiprocessing.get_context("forkserver")
        self.process = context.Process(
            target=_run_train, args=(self.args, str(home), environment, *pipes)
        )
        self.process.start()

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    poll = returncode.fget

    def send_signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait(self, timeout: float = 600) -> int:
        self.process.join(timeout)
        if self.returncode is None:
            self.process.kill()
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        self.wait(timeout)
        for file in self.files:
            file.seek(0)
        return tuple(file.read().decode() for file in self.files)


def train(words: list[str], home: Path, environment: dict[str, str]) -> subprocess.CompletedProcess:
    """Runs `python train.py WORDS` in `home`. Returns its exit code and output."""
    process = ForkedTrain(words, home, environment)
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _run_train(
    line: list[str], home: str, environment: dict[str, str], out: DupFd, err: DupFd
) -> None:
    """Runs a script in this process, with its output to two files, and ends the process."""
    os.setsid()
    for pipe, number in ((out, 1), (err, 2)):
        os.dup2(pipe.detach(), number)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(n, "wb", 0), write_through=True) for n in (1, 2)
    )
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(home)
    # Its loaders get their own server, as in a process that was not forked: they end when it is
    # killed.
    forkserver._forkserver.__init__()
    _start_fork_server_early()
    sys.argv, code = line, 0
    from tasks.modules import language_modeling

    language_modeling.GENERATED_TOKENS = 8
    try:
        runpy.run_path(line[0], run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    # Ends as a process that was not forked; a fork would wait for joblib's workers before it makes
    # them end.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _start_fork_server_early() -> None:
    """Forks the first fork server after all imports, and before anything is computed; it waits for
    requests, and ends with this process.
    """
    connection, server_connection = Pipe()
    if (pid := os.fork()) == 0:
        connection.close()
        os.setpgid(0, 0)
        sys.argv = ["tasks.process.fork_server", str(server_connection.fileno()), str(os.getppid())]
        with suppress(BaseException):
            fork_server.main()
        os._exit(0)
    server_connection.close()
    original_init = fork_server.ForkServer.__init__

    def use_started_server(self: fork_server.ForkServer) -> None:
        fork_server.ForkServer.__init__ = original_init
        self.process, self.connection = _ForkedProcess(pid), connection

    fork_server.ForkServer.__init__ = use_started_server


class _ForkedProcess:
    """A child process, with the members of subprocess.Popen that a fork server needs."""

    def __init__(self, pid: int):
        self.pid, self.code = pid, None

    def poll(self) -> int | None:
        if self.code is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.code = os.waitstatus_to_exitcode(ended[1])
        return self.code
