"""Trains a run of a study of another trainer: starts its command, and reads its result."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from math import isfinite
from pathlib import Path

from tasks.logging import summary
from tasks.process.exit_codes import FAILED, SIGNALS
from tasks.process.processes import forward_signals
from xformer_kit.study.external import command_of, key_of, read_result
from xformer_kit.study.nodes import Config

LOG = "train.log"  # output of the command


class ExternalCosts:
    """Costs of commands, of which only the number of runs is known. See `resolve.Costs`."""

    def key(self, config: Config) -> str:
        return key_of(config)

    def all(self, config: Config) -> dict[str, float]:
        return {"steps": 1}


def run_command(config: Config, directory: Path, lock: int) -> int:
    """Runs the command of a run in the current directory, and writes summary.json or ended.json;
    returns the exit code. Its output is in train.log. Signals that stop a run are sent to it.

    lock: file descriptor of the lock of the run. The command inherits it, so that no other process
    starts the run while the command goes on after a kill -9 of this process.
    """
    if summary.read(directory) is not None:  # the run is finished
        return 0
    (directory / summary.ENDED).unlink(missing_ok=True)
    text, metric = command_of(config, directory.resolve()), config["metric"]
    start = time.monotonic()
    with open(directory / LOG, "a", encoding="utf-8") as log:
        print(f"$ {text}", file=log, flush=True)
        child = subprocess.Popen(
            text,
            shell=True,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
            pass_fds=[lock],
        )

        def send(number: int) -> None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)

        with forward_signals(send):
            code = child.wait()
    number = -code if code < 0 else code - 128  # of the signal that ended the shell, or its child
    if number in SIGNALS:
        return 128 + number
    try:
        if code:
            why = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            raise ValueError(f"its command ended {why}: {_last_line(directory / LOG)}")
        value = read_result(config, directory.resolve())
        if not isfinite(value):
            raise ValueError(f"its {metric} is {value}")
    except ValueError as error:
        end = {"code": FAILED, "text": f"{error}; see {directory / LOG}", "step": None}
        summary.write(end, directory / summary.ENDED)
        return FAILED
    facts = {metric: value, "steps": 1, "seconds": time.monotonic() - start, "stopped": None}
    summary.write(facts | {"command": text}, directory / summary.SUMMARY)
    return 0


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
