"""Profiles some steps: where their time is spent."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasks.evaluation import EvaluatedTask as Task


@dataclass(eq=False)
class Profile:
    """torch's profiler over some steps: a Chrome trace and a table of the costliest operations."""

    folder: Path
    steps: int
    wait: int = 5

    def on_train_start(self, trainer: Any, task: Task) -> None:
        from torch.profiler import ProfilerActivity, profile, schedule

        # The first steps warm up; a run that has no more is traced from its middle on.
        steps = task.total_steps - task.step
        before = self.wait if steps > self.wait else steps // 2
        warnings.filterwarnings("ignore", message="Profiler won't be using warmup")
        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        plan = schedule(wait=max(0, before - 1), warmup=min(1, before), active=self.steps, repeat=1)
        self.profiler = profile(activities=kinds, schedule=plan, on_trace_ready=self._write)
        self.profiler.start()

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        self.profiler.step()

    def on_train_end(self, trainer: Any, task: Task) -> None:
        self.profiler.stop()

    def _write(self, profiler: Any) -> None:
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        profiler.export_chrome_trace(str(self.folder / "trace.json"))
        (self.folder / "profile.txt").write_text(
            profiler.key_averages().table(sort_by=by, row_limit=30)
        )
