"""The progress of a study: a live table on a terminal (rows: variants, columns: seeds), or lines in
a file.
"""

import threading
import time
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from tasks.logging.console import screen
from tasks.study import state, stopping
from tasks.study.resolve import StudyPlan
from xformer_kit.registry.messages import first_line
from xformer_kit.study.plan import StudyRun

UPDATE_SECONDS = 1.0  # between two updates of the table
MAX_COLUMNS = 10  # seeds with a column each; for more seeds, rows have counts
STYLE = {
    "finished": "",
    "diverged": "red",
    "failed": "red",
    "pruned": "dim",
    "running": "cyan",
    "stopped": "yellow",
    "open": "dim",
}


class ProgressTable:
    """Context manager that shows the progress of a study's runs."""

    def __init__(self, plan: StudyPlan):
        self.plan = plan
        self.states: dict[str, state.State] = {}
        self.plain_plan = plan.plain()
        self.stopped = stopping.StopDecision()
        self.console = screen(stderr=True)
        self.began = time.monotonic()
        self.done_before = self._update_states()
        self.live: Any = None
        self.closed = threading.Event()

    def __enter__(self) -> "ProgressTable":
        plan, reused = self.plan, self.done_before
        size = f"{plan.node['name']}: {plan.size_text}"
        self.console.print(f"{size}, {reused} of them done already" if reused else size)
        if self.console.is_terminal and reused < len(plan.runs):
            self.live = Live(
                self._table(), console=self.console, auto_refresh=False, redirect_stderr=False
            )
            self.live.start()
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        if self.live is not None:
            self.live.update(self._table(), refresh=True)
            self.live.stop()

    def update(self) -> None:
        """Updates the states; without a terminal, prints the runs that have ended since the last
        update.
        """
        before = dict(self.states)
        self._update_states()
        for run in self.plan.runs if self.live is None else ():
            current = self.states[run.key]
            if current.over and not (run.key in before and before[run.key].over):
                name = f"{run.variant.title} seed {run.seed}"
                self.console.print(f"{name}: {self._result(current)}", soft_wrap=True)

    def stops(self) -> stopping.StopDecision:
        """The decision of study.stop on the current states; without a terminal, newly stopped
        variants are printed.
        """
        before, self.stopped = self.stopped, stopping.decide(self.plain_plan, self.states)
        for label, sentence in self.stopped.reasons.items():
            if self.live is None and label not in before.reasons:
                self.console.print(sentence, soft_wrap=True)
        return self.stopped

    def _watch(self) -> None:
        while not self.closed.wait(UPDATE_SECONDS):
            self._update_states()
            self.live.update(self._table(), refresh=True)

    def _update_states(self) -> int:
        """Reads the states of runs that have not ended; returns the number of ended runs."""
        for run in self.plan.runs:
            if run.key not in self.states or not self.states[run.key].over:
                self.states[run.key] = self.plan.state(run)
        return sum(self.states[run.key].over for run in self.plan.runs)

    def _result(self, found: state.State) -> str:
        """The result of a run that has ended, for a cell or a line."""
        metric = self.plan.node["metric"]
        if found.status == "finished":
            value = found.facts.get(metric)
            return f"{value:.4f}" if isinstance(value, (int, float)) else f"no {metric}"
        if found.status == "failed" and self.live is None:
            return f"failed: {first_line(found.why)}"  # a cell has no room for the reason
        if found.status in ("diverged", "pruned"):
            return f"{found.status} at {found.step}"
        return found.status

    def _table(self) -> Any:
        seeds = list(dict.fromkeys(run.seed for run in self.plan.runs))
        grid = Table(box=None, header_style="dim", pad_edge=False)
        grid.add_column("variant", overflow="fold")
        many_seeds = len(seeds) > MAX_COLUMNS
        for title in ["done", "running"] if many_seeds else [f"seed {seed}" for seed in seeds]:
            grid.add_column(title, justify="right")
        for variant in self.plan.variants:
            runs = [run for run in self.plan.runs if run.variant is variant]
            cells = [Text(self._cell(run), STYLE[self.states[run.key].status]) for run in runs]
            if many_seeds:
                states = [self.states[run.key] for run in runs]
                over = sum(found.over for found in states)
                running = sum(found.status == "running" for found in states)
                cells = [Text(f"{over} of {len(runs)}"), Text(str(running or ""))]
            early = " (stopped early)" if variant.label in self.stopped.reasons else ""
            grid.add_row(variant.title + early, *cells)
        grid.caption, grid.caption_justify, grid.caption_style = self._caption(), "left", "dim"
        return grid

    def _cell(self, run: StudyRun) -> str:
        found = self.states[run.key]
        if run.key in self.stopped.left_out:
            return "left out"
        if found.over:
            return self._result(found)
        share = 100 * (found.step or 0) // int(run.variant.cost["steps"])
        return f"{share} %" if found.status in ("running", "stopped") else "."

    def _caption(self) -> str:
        left_out = self.stopped.left_out
        over = sum(found.over for key, found in self.states.items() if key not in left_out)
        trained = over - self.done_before
        remaining = len(self.plan.runs) - len(left_out) - over
        minutes = (time.monotonic() - self.began) / 60
        if not remaining:
            skipped = f", {len(left_out)} left out" * bool(left_out)
            return f"{over} runs in {minutes:.0f} min{skipped}"
        estimate = f", about {minutes / trained * remaining:.0f} min left" if trained else ""
        return f"{over} of {len(self.plan.runs)} runs{estimate}"
