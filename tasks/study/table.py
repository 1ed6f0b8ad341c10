"""The progress of a study on the terminal: a table on the terminal, a row for each variant and a
column for each seed; lines in a file.
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

EVERY = 1.0  # seconds between two looks
WIDE = 10  # seeds that have a column each; of more, a row says how many are done
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
    """Shows the runs while the block that it guards is at work."""

    def __init__(self, plan: StudyPlan):
        self.plan = plan
        self.states: dict[str, state.State] = {}
        self.kept = plan.plain()
        self.stopped = stopping.StopDecision()
        self.console = screen(stderr=True)
        self.began = time.monotonic()
        self.ready = self._over()
        self.live: Any = None
        self.done = threading.Event()

    def __enter__(self) -> "ProgressTable":
        plan, reused = self.plan, self.ready
        size = f"{plan.node['name']}: {plan.size_text}"
        self.console.print(f"{size}, of which {reused} are there already" if reused else size)
        if self.console.is_terminal and reused < len(plan.runs):
            self.live = Live(
                self._table(), console=self.console, auto_refresh=False, redirect_stderr=False
            )
            self.live.start()
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        if self.live is not None:
            self.live.update(self._table(), refresh=True)
            self.live.stop()

    def look(self) -> None:
        """Say on a screen that is no terminal which runs have ended since the last look."""
        before = dict(self.states)
        self._over()
        for run in self.plan.runs if self.live is None else ():
            now = self.states[run.key]
            if now.over and not (run.key in before and before[run.key].over):
                name = f"{run.variant.title} seed {run.seed}"
                self.console.print(f"{name}: {self._result(now)}", soft_wrap=True)

    def stops(self) -> stopping.StopDecision:
        """What study.stop decides by what was seen at the last look; said once for each variant
        that it ends.
        """
        before, self.stopped = self.stopped, stopping.decide(self.kept, self.states)
        for label, sentence in self.stopped.reasons.items():
            if self.live is None and label not in before.reasons:
                self.console.print(sentence, soft_wrap=True)
        return self.stopped

    def _watch(self) -> None:
        while not self.done.wait(EVERY):
            self._over()
            self.live.update(self._table(), refresh=True)

    def _over(self) -> int:
        """Look at the runs that were not over at the last look; returns how many are over now."""
        for run in self.plan.runs:
            if run.key not in self.states or not self.states[run.key].over:
                self.states[run.key] = self.plan.state(run)
        return sum(self.states[run.key].over for run in self.plan.runs)

    def _result(self, now: state.State) -> str:
        metric = self.plan.node["metric"]
        if now.status == "finished":
            value = now.facts.get(metric)
            return f"{value:.4f}" if isinstance(value, (int, float)) else f"no {metric}"
        if now.status == "failed" and self.live is None:
            # A line of its own has room for the reason.
            return f"failed: {first_line(now.why)}"
        return f"{now.status} at {now.step}" if now.status in ("diverged", "pruned") else now.status

    def _table(self) -> Any:
        seeds = list(dict.fromkeys(run.seed for run in self.plan.runs))
        grid = Table(box=None, header_style="dim", pad_edge=False)
        grid.add_column("variant", overflow="fold")
        wide = len(seeds) > WIDE
        for title in ["done", "under way"] if wide else [f"seed {seed}" for seed in seeds]:
            grid.add_column(title, justify="right")
        for variant in self.plan.variants:
            mine = [run for run in self.plan.runs if run.variant is variant]
            cells = [Text(self._cell(run), STYLE[self.states[run.key].status]) for run in mine]
            if wide:
                states = [self.states[run.key] for run in mine]
                over = sum(now.over for now in states)
                running = sum(now.status == "running" for now in states)
                cells = [Text(f"{over} of {len(mine)}"), Text(str(running or ""))]
            early = " (stopped early)" if variant.label in self.stopped.reasons else ""
            grid.add_row(variant.title + early, *cells)
        grid.caption, grid.caption_justify, grid.caption_style = self._caption(), "left", "dim"
        return grid

    def _cell(self, run: StudyRun) -> str:
        now = self.states[run.key]
        if run.key in self.stopped.left_out:
            return "left out"
        if now.over:
            return self._result(now)
        share = 100 * (now.step or 0) // int(run.variant.cost["steps"])
        return f"{share} %" if now.status in ("running", "stopped") else "."

    def _caption(self) -> str:
        gone = self.stopped.left_out
        over = sum(now.over for key, now in self.states.items() if key not in gone)
        fresh, left = over - self.ready, len(self.plan.runs) - len(gone) - over
        spent = (time.monotonic() - self.began) / 60
        if not left:
            return f"{over} runs in {spent:.0f} min" + f", {len(gone)} left out" * bool(gone)
        ahead = f", about {spent / fresh * left:.0f} min to go" if fresh else ""
        return f"{over} of {len(self.plan.runs)} runs{ahead}"
