"""`python train.py ...` in a fork of a process that has imported what it needs: for tests of what
is said and done, not of how a process starts or dies. One such process serves all tests of a
worker.
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

from tasks.run import fork_server

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = [
    "tasks.run.hydra_app",
    "tasks.run.start",
    "tasks.run.training_process",
    "tasks.logging.sweep_table",
    "xformer_kit.study.plan",
]


def laid_over(words: list[str]) -> list[str]:
    """The words without those whose key comes again: a test's own stand after those of its file,
    and a line has each key once.
    """
    last = {word.partition("=")[0]: at for at, word in enumerate(words)}
    return [word for at, word in enumerate(words) if last[word.partition("=")[0]] == at]


class Begun:
    """A line of `python train.py` that runs, with what the tests use of subprocess.Popen."""

    def __init__(
        self,
        words: list[str],
        home: Path,
        environment: dict[str, str],
        script: Path = ROOT / "train.py",
    ):
        self.args = [str(script), *laid_over(words)]
        self.files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
        pipes = [DupFd(file.fileno()) for file in self.files]
        context = multiprocessing.get_context("forkserver")
        self.process = context.Process(
            target=_become, args=(self.args, str(home), environment, *pipes)
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
    """What `python train.py WORDS` in `home` ended with."""
    begun = Begun(words, home, environment)
    out, err = begun.communicate()
    return subprocess.CompletedProcess(begun.args, begun.returncode, out, err)


def _become(
    line: list[str], home: str, environment: dict[str, str], out: DupFd, err: DupFd
) -> None:
    os.setsid()
    for pipe, number in ((out, 1), (err, 2)):
        os.dup2(pipe.detach(), number)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(n, "wb", 0), write_through=True) for n in (1, 2)
    )
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(home)
    # Its loaders have a server of their own, as in a process that was not forked: they end when it
    # is killed.
    forkserver._forkserver.__init__()
    _keep_a_fork_server()
    sys.argv, code = line, 0
    try:
        runpy.run_path(line[0], run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    # As a Python that was not forked ends; a fork would wait for joblib's workers before it tells
    # them to end.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _keep_a_fork_server() -> None:
    """Fork the first fork server now that all is imported and nothing was computed; it waits for
    requests, and ends with this process.
    """
    mine, theirs = Pipe()
    if (pid := os.fork()) == 0:
        mine.close()
        os.setpgid(0, 0)
        sys.argv = ["tasks.run.fork_server", str(theirs.fileno()), str(os.getppid())]
        with suppress(BaseException):
            fork_server.main()
        os._exit(0)
    theirs.close()
    begin = fork_server.ForkServer.__init__

    def take(self: fork_server.ForkServer) -> None:
        fork_server.ForkServer.__init__ = begin
        self.process, self.connection = _Forked(pid), mine

    fork_server.ForkServer.__init__ = take


class _Forked:
    """A child, with what a fork server needs of subprocess.Popen."""

    def __init__(self, pid: int):
        self.pid, self.code = pid, None

    def poll(self) -> int | None:
        if self.code is None and (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.code = os.waitstatus_to_exitcode(ended[1])
        return self.code
