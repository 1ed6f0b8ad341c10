"""A process that has imported the modules of a run, and forks a process per run of a multirun.

    python -m tasks.process.fork_server CONNECTION PARENT

Imports take longer than many small runs. A fork starts with the imports done, and shares nothing
else: the server has computed nothing, started no thread and used no device. For each run the server
receives (arguments of the worker, environment); it sends the process id of the fork, then its exit
code.

Only without a GPU: a CUDA context does not survive a fork.
"""

import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from runpy import run_module
from typing import Any

from tasks.process.exit_codes import SIGNALS
from tasks.process.job import Job
from tasks.process.processes import end_with_parent, forward_signals, import_environment

_server: "ForkServer | None" = None  # started by the first `launch` of this process


def is_supported() -> bool:
    """Whether runs on this machine can train in forks."""
    import torch

    return sys.platform == "linux" and not torch.cuda.is_available()


def launch(job: Job) -> int:
    """Trains a run in a fork of this process's server, and returns its exit code."""
    global _server
    if _server is None or _server.process.poll() is not None:
        _server = ForkServer()
    return _server.train(job)


class ForkServer:
    """The client: starts the server process, and has it fork a process per run."""

    def __init__(self) -> None:
        self.connection, server_end = Pipe()
        arguments = map(str, (server_end.fileno(), os.getpid()))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tasks.process.fork_server", *arguments],
            env=os.environ | import_environment(),
            pass_fds=[server_end.fileno()],
            process_group=0,
            stdin=subprocess.DEVNULL,
        )
        server_end.close()

    def train(self, job: Job) -> int:
        """Trains a run in a fork, and returns its exit code."""
        arguments = replace(job, parent=self.process.pid).arguments()
        try:
            self.connection.send((arguments, os.environ | import_environment()))
            pid = self.connection.recv()

            def send(number: int) -> None:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, number)

            with forward_signals(send):
                code = self.connection.recv()
        except (EOFError, OSError):  # the server was killed
            code = -signal.SIGKILL
        return code if code >= 0 else 128 - code


def serve(connection: Connection) -> None:
    """Forks a process for each run, one after another, until the client closes the connection."""
    # The slow imports; by name, since the modules of a worker are no imports of this one.
    import_module("tasks.run.training_process")
    with suppress(EOFError):
        while True:
            arguments, environment = connection.recv()
            if (pid := os.fork()) == 0:
                _run_worker(arguments, environment)
            connection.send(pid)
            connection.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _run_worker(arguments: list[str], environment: dict[str, str]) -> None:
    """Does in a fork what `python -m tasks.run.worker` does, and exits."""
    code: Any = 1
    try:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["tasks.run.worker", *arguments, "1"]
        run_module("tasks.run.worker", run_name="__main__")
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Runs the command line of this module: the server process."""
    connection_fd, parent = map(int, sys.argv[1:])
    end_with_parent(parent)
    for number in SIGNALS:  # the client sends them to the forks
        signal.signal(number, signal.SIG_IGN)
    serve(Connection(connection_fd))


if __name__ == "__main__":
    main()
