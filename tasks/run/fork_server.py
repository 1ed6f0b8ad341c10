"""A process that has imported what a run needs, and forks one process for each run of a multirun.

    python -m tasks.run.fork_server READ WRITE

Imports take longer than many small runs. A fork starts with the imports done, and shares nothing
else: nothing has been computed here, no thread was started and no device was used, so each job has
a process of its own. Requests and answers are lines of JSON on two pipes: {run_dir, parts,
environment} -> {pid} when it runs, {code} when it has ended.

Only without a GPU: a CUDA context does not survive a fork.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from runpy import run_module
from typing import Any, TextIO

from tasks.run.exit_codes import SIGNALS
from tasks.run.processes import PARENT, end_with_parent, forwarding_signals, worker_environment
from tasks.types import Files, State

_forge: "ForkServer | None" = None  # of this process


def usable() -> bool:
    import torch

    return sys.platform == "linux" and not torch.cuda.is_available()


def launch(run_dir: Path, parts: Files, quiet: bool) -> int:
    """Train a run in a process of its own, and return its exit code."""
    global _forge
    if _forge is None or not _forge.alive:
        _forge = ForkServer()
    return _forge.train(run_dir, parts, quiet)


class ForkServer:
    """The client of the fork server."""

    def __init__(self) -> None:
        # of answers, of requests
        mine = os.pipe()
        theirs = os.pipe()
        command = [sys.executable, "-m", "tasks.run.fork_server", str(theirs[0]), str(mine[1])]
        fds = theirs[0], mine[1]
        self.process = subprocess.Popen(
            command,
            env=worker_environment(False, True),
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

    def train(self, run_dir: Path, parts: Files, quiet: bool) -> int:
        said = {
            "run_dir": str(run_dir),
            "parts": parts,
            "environment": worker_environment(quiet, True),
        }
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
    """Run what `python -m tasks.run.worker RUN` runs, and exit."""
    code: Any = 1
    try:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        os.environ.clear()
        os.environ.update(asked["environment"] | {PARENT: str(os.getppid())})
        sys.argv = ["tasks.run.worker", asked["run_dir"], "--parts", *asked["parts"]]
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
    end_with_parent()
    for number in SIGNALS:  # each run gets the signal by itself
        signal.signal(number, signal.SIG_IGN)
    with open(int(sys.argv[1])) as requests, open(int(sys.argv[2]), "w") as answers:
        serve(requests, answers)


if __name__ == "__main__":
    main()
