"""The progress of a run: a live bar on a terminal, a line every so often elsewhere."""

import sys
import time

from rich.progress import BarColumn, Progress, TextColumn

from tasks.logging.console import screen
from xformer_kit.study.report.numbers import compact as compact

REDRAW = 0.25  # seconds between two pictures of the bar
LINE = 15.0  # seconds between two lines without a terminal


class Bar:
    """Shows step/total, loss, tokens/s and the time left. Call `due` every step, and read the loss
    only if it returns True.
    """

    def __init__(self, total: int, done: int = 0, live: bool | None = None):
        self.console = screen(stderr=True)
        self.live = self.console.is_terminal if live is None else live
        self.total = total
        self.next = 0.0
        self.progress: Progress | None = None
        if self.live:
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
                "", total=total, completed=done, loss="...", speed="...", left="first step"
            )
            self.progress.start()

    def due(self, step: int) -> bool:
        """Whether it is time; a live bar always shows the last step."""
        return time.perf_counter() >= self.next or (
            self.progress is not None and step >= self.total
        )

    def show(self, step: int, loss: float, tokens_per_second: float, seconds_left: float) -> None:
        if self.progress is not None:
            shown = {
                "loss": f"{loss:.3f}",
                "speed": compact(tokens_per_second),
                "left": f"{duration(seconds_left)} left",
            }
            self.progress.update(self.task, completed=step, **shown)  # type: ignore[arg-type]
            self.progress.refresh()
        elif self.next:
            speed = compact(tokens_per_second)
            self.print_line(
                f"step {step:,}/{self.total:,}  loss {loss:.3f}  {speed} tokens/s "
                f" {duration(seconds_left)} left"
            )
        self.next = time.perf_counter() + (REDRAW if self.progress is not None else LINE)

    def print_line(self, line: str) -> None:
        """A line above the bar."""
        self.console.print(line, soft_wrap=True)

    def close(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None
        sys.stderr.flush()


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
