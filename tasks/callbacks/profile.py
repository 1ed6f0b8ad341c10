"""Where does the time of a step go?"""

from pathlib import Path
from typing import Any

import torch

from tasks.language_modeling import LanguageModelingTask as Task


class Profile:
    """torch's profiler over some steps: a Chrome trace and a table of the costliest operations."""

    def __init__(self, folder: Path, steps: int, wait: int = 5):
        self.folder, self.steps, self.wait = folder, steps, wait

    def on_train_start(self, trainer: Any, task: Task) -> None:
        from torch.profiler import ProfilerActivity, profile, schedule

        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        plan = schedule(wait=max(0, self.wait - 1), warmup=1, active=self.steps, repeat=1)
        self.profiler = profile(activities=kinds, schedule=plan, on_trace_ready=self._write)
        self.profiler.start()

    def on_train_batch_end(self, trainer: Any, task: Task) -> None:
        self.profiler.step()

    def on_train_end(self, trainer: Any, task: Task) -> None:
        self.profiler.stop()

    def _write(self, profiler: Any) -> None:
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        profiler.export_chrome_trace(str(self.folder / "trace.json"))
        (self.folder / "profile.txt").write_text(profiler.key_averages().table(sort_by=by, row_limit=30))
