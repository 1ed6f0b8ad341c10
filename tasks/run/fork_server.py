"""A process that has imported what a run needs, and forks one process for each run of a multirun.

    python -m tasks.run.fork_server READ WRITE PARENT

Imports take longer than many small runs. A fork starts with the imports done, and shares nothing
else: nothing has been computed here, no thread was started and no device was used, so each job has
a process of its own. Requests and answers are lines of JSON on two pipes: {arguments of the worker,
environment} -> {pid} when it runs, {code} when it has ended.

Only without a GPU: a CUDA context does not survive a fork.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import replace
from importlib import import_module
from runpy import run_module
from typing import Any, TextIO

from tasks.run.exit_codes import SIGNALS
from tasks.run.job import Job
from tasks.run.processes import end_with_parent, forwarding_signals, import_environment
from tasks.types import State

_forge: "ForkServer | None" = None  # of this process


def usable() -> bool:
    import torch

    return sys.platform == "linux" and not torch.cuda.is_available()


def launch(job: Job) -> int:
    """Train a run in a process of its own, and return its exit code."""
    global _forge
    if _forge is None or not _forge.alive:
        _forge = ForkServer()
    return _forge.train(job)


class ForkServer:
    """The client of the fork server."""

    def __init__(self) -> None:
        # of answers, of requests
        mine = os.pipe()
        theirs = os.pipe()
        fds = theirs[0], mine[1]
        numbers = map(str, (*fds, os.getpid()))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tasks.run.fork_server", *numbers],
            env=os.environ | import_environment(),
            pass_fds=fds,
            process_group=0,
            stdin=subprocess.DEVNULL,
        )
        for fd in fds:
            os.close(fd)
        self.answers = os.fdopen(mine[0])
        self.requests = os.fdopen(theirs[1], "w")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def train(self, job: Job) -> int:
        environment = os.environ | import_environment()
        arguments = replace(job, parent=self.process.pid).arguments()
        said = {"arguments": arguments, "environment": environment}
        print(json.dumps(said), file=self.requests, flush=True)
        begun = self._answer()
        with forwarding_signals(lambda number: os.kill(begun["pid"], number)):
            code = self._answer()["code"]
        return code if code >= 0 else 128 - code

    def _answer(self) -> State:
        line = self.answers.readline()
        return json.loads(line) if line else {"pid": self.process.pid, "code": -signal.SIGKILL}


def serve(requests: TextIO, answers: TextIO) -> None:
    """Fork a process for each request, one after another, until the client closes the pipe."""
    # What takes the time; by name, as a worker is started.
    import_module("tasks.run.training_process")
    for line in requests:
        asked = json.loads(line)
        if (pid := os.fork()) == 0:
            _child(asked)
        print(json.dumps({"pid": pid}), file=answers, flush=True)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"code": code}), file=answers, flush=True)


def _child(asked: State) -> None:
    """Run what `python -m tasks.run.worker` runs, and exit."""
    code: Any = 1
    try:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.argv = ["tasks.run.worker", *asked["arguments"], "1"]
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
    requests_, answers_, parent = map(int, sys.argv[1:])
    end_with_parent(parent)
    for number in SIGNALS:  # each run gets the signal by itself
        signal.signal(number, signal.SIG_IGN)
    with open(requests_) as requests, open(answers_, "w") as answers:
        serve(requests, answers)


if __name__ == "__main__":
    main()
