"""The progress of a run: a bar on a terminal, else a line every LINE_INTERVAL seconds."""

import sys
import time
from datetime import timedelta
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn

from tasks.logging.console import create_console
from xformer_kit.study.numbers import compact

BAR_INTERVAL = 0.25  # seconds between two updates of the bar
LINE_INTERVAL = 15.0  # seconds between two lines


class Bar:
    """Shows step/total, loss, tokens/s and the remaining time on stderr.

    Call `due` after each step, and `show` if it returns True. live: whether to draw a bar, by
    default on a terminal. first: what is shown until the first call of `show`.
    """

    def __init__(
        self, total: int, done: int = 0, live: bool | None = None, first: str = "first step"
    ):
        self.console = create_console(stderr=True)
        self.total = total
        self.next_time = 0.0  # of an update
        self.progress: Progress | None = None
        if self.console.is_terminal if live is None else live:
            self.progress = Progress(
                TextColumn("[bold]{task.completed:,}[/]/{task.total:,}"),
                BarColumn(bar_width=None),
                TextColumn("loss [bold]{task.fields[loss]}[/]"),
                TextColumn("{task.fields[speed]} tokens/s"),
                TextColumn("[cyan]{task.fields[left]}"),
                console=self.console,
                auto_refresh=False,
                transient=True,
            )
            self.task = self.progress.add_task(
                "", total=total, completed=done, loss="...", speed="...", left=first
            )
            self.progress.start()

    def due(self, step: int) -> bool:
        """Whether it is time for an update; a bar always shows the last step."""
        is_last = self.progress is not None and step >= self.total
        return is_last or time.perf_counter() >= self.next_time

    def show(self, step: int, loss: float, tokens_per_second: float, seconds_left: float) -> None:
        """Update the bar, or print a line, except at the first call."""
        speed, left = compact(tokens_per_second), f"{timedelta(seconds=round(seconds_left))} left"
        interval = LINE_INTERVAL
        if self.progress is not None:
            fields: dict[str, Any] = {"loss": f"{loss:.3f}", "speed": speed, "left": left}
            self.progress.update(self.task, completed=step, **fields)
            self.progress.refresh()
            interval = BAR_INTERVAL
        elif self.next_time:
            self.print_line(
                f"step {step:,}/{self.total:,}  loss {loss:.3f}  {speed} tokens/s  {left}"
            )
        self.next_time = time.perf_counter() + interval

    def print_line(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        self.console.print(line, soft_wrap=True)

    def close(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None
        sys.stderr.flush()
