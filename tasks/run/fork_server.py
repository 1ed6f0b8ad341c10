"""A process that has imported what a run needs, and forks a process per run of a multirun.

    python -m tasks.run.fork_server CONNECTION PARENT

Imports take longer than many small runs. A fork starts with the imports done, and shares nothing
else: nothing has been computed here, no thread was started and no device was used, so each job has
a process of its own. It gets (arguments of the worker, environment) for each, and answers with the
process that runs it, then with its exit code.

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

from tasks.run.exit_codes import SIGNALS
from tasks.run.job import Job
from tasks.run.processes import end_with_parent, forwarding_signals, import_environment

_server: "ForkServer | None" = None  # of this process


def usable() -> bool:
    import torch

    return sys.platform == "linux" and not torch.cuda.is_available()


def launch(job: Job) -> int:
    """Train a run in a process of its own, and return its exit code."""
    global _server
    if _server is None or _server.process.poll() is not None:
        _server = ForkServer()
    return _server.train(job)


class ForkServer:
    """The client of the fork server."""

    def __init__(self) -> None:
        self.connection, server_end = Pipe()
        arguments = map(str, (server_end.fileno(), os.getpid()))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tasks.run.fork_server", *arguments],
            env=os.environ | import_environment(),
            pass_fds=[server_end.fileno()],
            process_group=0,
            stdin=subprocess.DEVNULL,
        )
        server_end.close()

    def train(self, job: Job) -> int:
        arguments = replace(job, parent=self.process.pid).arguments()
        try:
            self.connection.send((arguments, os.environ | import_environment()))
            process = self.connection.recv()

            def send(number: int) -> None:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(process, number)

            with forwarding_signals(send):
                code = self.connection.recv()
        except (EOFError, OSError):  # the server was killed
            code = -signal.SIGKILL
        return code if code >= 0 else 128 - code


def serve(connection: Connection) -> None:
    """Fork a process for each request, one after another, until the client closes the
    connection.
    """
    # The slow imports; by name, as a worker is started.
    import_module("tasks.run.training_process")
    with suppress(EOFError):
        while True:
            arguments, environment = connection.recv()
            if (pid := os.fork()) == 0:
                _child(arguments, environment)
            connection.send(pid)
            connection.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _child(arguments: list[str], environment: dict[str, str]) -> None:
    """Run what `python -m tasks.run.worker` runs, and exit."""
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
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def main() -> None:
    number, parent = map(int, sys.argv[1:])
    end_with_parent(parent)
    for stop in SIGNALS:  # each run gets the signal by itself
        signal.signal(stop, signal.SIG_IGN)
    serve(Connection(number))


if __name__ == "__main__":
    main()
