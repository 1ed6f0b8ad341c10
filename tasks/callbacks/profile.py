"""Profiles some steps with torch.profiler."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasks.modules.evaluation import EvaluatedTask as Task

WARM_UP = 5  # steps before the trace


@dataclass(eq=False)
class Profile:
    """Writes trace.json, a Chrome trace of some steps, and profile.txt, their slowest functions."""

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
        column = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        profiler.export_chrome_trace(str(self.folder / "trace.json"))
        (self.folder / "profile.txt").write_text(
            profiler.key_averages().table(sort_by=column, row_limit=30)
        )
