"""Profiles some steps with torch.profiler."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasks.logging.summary import PROFILE
from tasks.modules.evaluation import EvaluatedTask as Task

WARM_UP = 5  # steps before the trace
SHOWN = 10  # operations of the short table
PYTHON = "between operations"  # the name in the short table of a step's own time
FORM = "{:<40}  {:>8}  {:>8}  {:>6}"  # a line of the short table


@dataclass(eq=False)
class Profile:
    """Writes trace.json, a Chrome trace of some steps, and profile.txt: a short table, an empty
    line, and the table of torch's profiler.
    """

    folder: Path
    steps: int

    def on_train_start(self, trainer: Any, task: Task) -> None:
        from torch.profiler import ProfilerActivity, profile, schedule

        # The first steps are slower; a run without more steps is traced from its middle.
        remaining = task.total_steps - task.step
        before = WARM_UP if remaining > WARM_UP else remaining // 2
        warnings.filterwarnings("ignore", message="Profiler won't be using warmup")
        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        steps = schedule(
            wait=max(0, before - 1), warmup=min(1, before), active=self.steps, repeat=1
        )
        self.profiler = profile(activities=kinds, schedule=steps, on_trace_ready=self._write)
        self.profiler.start()

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        self.profiler.step()

    def on_train_end(self, trainer: Any, task: Task) -> None:
        self.profiler.stop()

    def _write(self, profiler: Any) -> None:
        column = f"self_{'device' if torch.cuda.is_available() else 'cpu'}_time_total"
        profiler.export_chrome_trace(str(self.folder / "trace.json"))
        averages = profiler.key_averages()
        full = averages.table(sort_by=column, row_limit=30)
        (self.folder / PROFILE).write_text(f"{short_table(averages, column)}\n\n{full}")


def short_table(averages: Any, column: str) -> str:
    """Returns a table of the SHOWN operations with the largest self time, which is the time of an
    operation without those that it calls: name, calls, self time in milliseconds, and share of the
    self time of all operations.

    averages: EventList of torch's profiler. column: the attribute of its events with the self time
    in microseconds, on the CPU or on the device.
    """
    # Kernels of a GPU are events too; their time is in the operation that starts them.
    operations = [event for event in averages if event.device_type.name == "CPU"]
    seconds = {id(event): getattr(event, column) / 1e6 for event in operations}
    operations.sort(key=lambda event: -seconds[id(event)])
    total = sum(seconds.values()) or 1.0
    lines = [FORM.format("operation", "calls", "self ms", "share")]
    for event in operations[:SHOWN]:
        name = PYTHON if event.key == "ProfilerStep*" else event.key
        own = seconds[id(event)]
        # A backward operation differs from its forward operation in the end of the name.
        name = name if len(name) <= 40 else f"{name[:19]}…{name[-20:]}"
        lines.append(
            FORM.format(name, f"{event.count:,}", f"{own * 1e3:,.1f}", f"{own / total:.1%}")
        )
    return "\n".join(lines)
