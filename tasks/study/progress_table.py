"""The progress of a study: a live table on a terminal (rows: variants, columns: seeds), or lines in
a file.
"""

import threading
import time
from typing import Any

from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from tasks.logging.console import create_console
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
        self.console = create_console(stderr=True)
        self.began = time.monotonic()
        self.done_before = self._update_states()
        self.live: Any = None
        self.closed = threading.Event()
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.updating = threading.Lock()

    def __enter__(self) -> "ProgressTable":
        plan, done = self.plan, self.done_before
        size = f"{plan.node['name']}: {plan.size_text}"
        self.console.print(f"{size}, {done} of them done already" if done else size)
        if self.console.is_terminal and done < len(plan.runs):
            self.live = Live(
                self._table(), console=self.console, auto_refresh=False, redirect_stderr=False
            )
            self.live.start()
        self.watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self.watcher.join()
        if self.live is not None:
            self.live.update(self._table(), refresh=True)
            self.live.stop()

    def update(self) -> None:
        """Updates the states; without a terminal, prints the runs that have ended since the last
        update.
        """
        with self.updating:
            ended_before = {key for key, found in self.states.items() if found.over}
            self._update_states()
            for run in self.plan.runs if self.live is None else ():
                if (current := self.states[run.key]).over and run.key not in ended_before:
                    name = f"{run.variant.title} seed {run.seed}"
                    self.console.print(f"{name}: {self._result(current)}", soft_wrap=True)

    def stops(self) -> stopping.StopDecision:
        """Returns the decision of study.stop on the current states; without a terminal, newly
        stopped variants are printed.
        """
        before, self.stopped = self.stopped, stopping.decide(self.plain_plan, self.states)
        for label, sentence in self.stopped.reasons.items():
            if self.live is None and label not in before.reasons:
                self.console.print(sentence, soft_wrap=True)
        return self.stopped

    def _watch(self) -> None:
        """Updates the table until it is closed; runs in a thread."""
        while not self.closed.wait(UPDATE_SECONDS):
            self.update()
            if self.live is not None:
                self.live.update(self._table(), refresh=True)

    def _update_states(self) -> int:
        """Reads the states of runs that have not ended; returns the number of ended runs."""
        for run in self.plan.runs:
            if run.key not in self.states or not self.states[run.key].over:
                self.states[run.key] = self.plan.state(run)
        return sum(self.states[run.key].over for run in self.plan.runs)

    def _result(self, current: state.State) -> str:
        """Returns the result of a run that has ended, for a cell or a line."""
        metric = self.plan.node["metric"]
        if current.status == "finished":
            value = current.facts.get(metric)
            return f"{value:.4f}" if isinstance(value, (int, float)) else f"no {metric}"
        if current.status == "failed" and self.live is None:
            return f"failed: {first_line(current.why)}"  # a cell has no room for the reason
        if current.status in ("diverged", "pruned"):
            return f"{current.status} at {current.step}"
        return current.status

    def _table(self) -> Any:
        seeds = dict.fromkeys(run.seed for run in self.plan.runs)
        many_seeds = len(seeds) > MAX_COLUMNS
        headings = ["done", "running"] if many_seeds else [f"seed {seed}" for seed in seeds]
        table = Table(
            Column("variant", overflow="fold"),
            *(Column(heading, justify="right") for heading in headings),
            box=None,
            header_style="dim",
            pad_edge=False,
            caption=self._caption(),
            caption_justify="left",
            caption_style="dim",
        )
        for variant in self.plan.variants:
            runs = [run for run in self.plan.runs if run.variant is variant]
            cells = [Text(self._cell(run), STYLE[self.states[run.key].status]) for run in runs]
            if many_seeds:
                states = [self.states[run.key] for run in runs]
                over = sum(found.over for found in states)
                running = sum(found.status == "running" for found in states)
                cells = [Text(f"{over} of {len(runs)}"), Text(str(running or ""))]
            early = " (stopped early)" if variant.label in self.stopped.reasons else ""
            table.add_row(variant.title + early, *cells)
        return table

    def _cell(self, run: StudyRun) -> str:
        """Returns the result of a run, or how much of it is done."""
        current = self.states[run.key]
        if run.key in self.stopped.left_out:
            return "left out"
        if current.over:
            return self._result(current)
        share = 100 * (current.step or 0) // int(run.variant.cost["steps"])
        return f"{share} %" if current.status in ("running", "stopped") else "."

    def _caption(self) -> str:
        """Returns the number of ended runs, and the estimated time of the others."""
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
