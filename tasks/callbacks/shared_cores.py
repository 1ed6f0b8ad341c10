"""Training on a CPU next to other processes that use its cores."""

import math
import os
import threading
import time
from typing import Any

import torch

from tasks.modules.evaluation import EvaluatedTask as Task

WINDOW = 2.0  # seconds of steps, or one longer step, over which time is measured
BUSY = 0.8  # share of the threads' time below which other processes use the cores
PERIOD = 20  # windows until a decision is made again


class SharedCores:
    """Lets the threads of an operation sleep while they wait for each other, if other processes use
    the cores.

    By default they spin for some milliseconds, which is fastest while each has a core. Next to one
    busy process on two cores a thread often waits for one that does not run, and its spinning takes
    the core from that thread: a step of the default run took 3.5 times as long as on idle cores,
    and 2.0 times with sleep. On idle cores a step with sleep took 1.2 to 1.5 times as long as with
    spinning. So threads sleep only if they do not get BUSY of their time, and spin again in one
    window after PERIOD windows; if a step takes longer with sleep, they spin for PERIOD windows.

    libgomp, the OpenMP of torch on Linux, spins only briefly once it has more threads than there
    are cores. So helper threads, each with a team of its own that waits, make the other threads
    sleep. What the threads compute, and with it each bit of the result, stays the same. With
    another OpenMP the helpers have no effect.
    """

    def __init__(self) -> None:
        self.end_of_sleep: threading.Event | None = None  # None: threads spin
        self.spinning_step = 0.0  # seconds of a step before threads slept
        self.windows_left = 2  # the first steps are slower, and are not measured
        self._clear()

    def on_train_start(self, trainer: Any, task: Task) -> None:
        self.threads = torch.get_num_threads() if task.device.type == "cpu" else 1

    def on_train_batch_start(self, trainer: Any, task: Task) -> None:
        self.start = time.perf_counter(), time.process_time()

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        seconds, cpu_seconds = self.start
        self.seconds += time.perf_counter() - seconds
        self.cpu_seconds += time.process_time() - cpu_seconds
        self.steps += 1
        if self.threads > 1 and self.seconds >= WINDOW:
            share = self.cpu_seconds / (self.threads * self.seconds)
            self.decide(self.seconds / self.steps, share)
            self._clear()

    def on_train_end(self, trainer: Any, task: Task) -> None:
        self._spin()

    def on_exception(self, trainer: Any, task: Task, error: BaseException) -> None:
        self._spin()

    def decide(self, step: float, share: float) -> None:
        """Called after each window. step: seconds of a step; share: CPU time of this process,
        divided by that of `threads` cores.
        """
        is_slower = self.end_of_sleep is not None and step > self.spinning_step
        self.windows_left -= 1
        if self.windows_left > 0 and not is_slower:
            return
        if self.end_of_sleep is not None:
            self._spin()
            self.windows_left = PERIOD if is_slower else 1
        elif share < BUSY:
            self.spinning_step = step
            self._sleep()
            self.windows_left = PERIOD

    def _sleep(self) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.end_of_sleep = threading.Event()
        for _ in range(helper_count(self.threads, cores or 1)):
            arguments = (self.threads, self.end_of_sleep)
            threading.Thread(target=_wait_with_team, args=arguments, daemon=True).start()

    def _spin(self) -> None:
        if self.end_of_sleep is not None:
            self.end_of_sleep.set()
            self.end_of_sleep = None

    def _clear(self) -> None:
        """Begins a window."""
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.steps = 0


def helper_count(threads: int, cores: int) -> int:
    """Returns how many helpers with teams of `threads` threads, one of which is the helper, make
    libgomp count more threads than cores. It counts the first thread of the process and the others
    of each team.
    """
    return max(1, math.ceil(cores / (threads - 1)) - 1)


def _wait_with_team(threads: int, end: threading.Event) -> None:
    """Starts the threads of this thread's team, which end with it, and waits."""
    torch.zeros(threads * 2**15).add_(1)  # at least 2**15 numbers per thread, or it uses fewer
    end.wait()
