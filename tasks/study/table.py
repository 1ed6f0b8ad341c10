"""The progress of a study on the terminal: a table on the terminal, a row for each variant and a
column for each seed; lines in a file.
"""

import threading
import time
from typing import Any

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
        from tasks.logging.console import screen

        self.plan = plan
        self.states = dict[str, state.State]()
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
            from rich.live import Live

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
                self.console.print(f"{self._name(run)}: {self._result(now)}", soft_wrap=True)

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

    def _name(self, run: StudyRun) -> str:
        return f"{run.variant.title} seed {run.seed}"

    def _result(self, now: state.State) -> str:
        metric = self.plan.node["metric"]
        if now.status == "finished":
            value = now.facts.get(metric)
            return f"{value:.4f}" if isinstance(value, (int, float)) else f"no {metric}"
        if (
            now.status == "failed" and self.live is None
        ):  # a line of its own has room for the reason
            return f"failed: {first_line(now.why)}"
        return f"{now.status} at {now.step}" if now.status in ("diverged", "pruned") else now.status

    def _table(self) -> Any:
        from rich.table import Table as Grid
        from rich.text import Text

        seeds = list(dict.fromkeys(run.seed for run in self.plan.runs))
        grid = Grid(box=None, header_style="dim", pad_edge=False)
        grid.add_column("variant", overflow="fold")
        for title in (
            [f"seed {seed}" for seed in seeds] if len(seeds) <= WIDE else ["done", "under way"]
        ):
            grid.add_column(title, justify="right")
        for variant in self.plan.variants:
            mine = [run for run in self.plan.runs if run.variant is variant]
            if len(seeds) <= WIDE:
                cells = [Text(self._cell(run), STYLE[self.states[run.key].status]) for run in mine]
            else:
                cells = [
                    Text(f"{self._count(mine, True)} of {len(mine)}"),
                    Text(str(self._count(mine, False) or "")),
                ]
            early = " (stopped early)" if variant.label in self.stopped.reasons else ""
            grid.add_row(variant.title + early, *cells)
        grid.caption, grid.caption_justify, grid.caption_style = self._caption(), "left", "dim"
        return grid

    def _count(self, mine: list[StudyRun], over: bool) -> int:
        states = [self.states[run.key] for run in mine]
        return sum(s.over if over else s.status == "running" for s in states)

    def _cell(self, run: StudyRun) -> str:
        now = self.states[run.key]
        if run.key in self.stopped.left_out:
            return "left out"
        if now.over:
            return self._result(now)
        steps = int(run.variant.cost["steps"])
        return (
            f"{100 * (now.step or 0) // steps} %" if now.status in ("running", "stopped") else "."
        )

    def _caption(self) -> str:
        over = sum(s.over for key, s in self.states.items() if key not in self.stopped.left_out)
        fresh, left = over - self.ready, len(self.plan.runs) - len(self.stopped.left_out) - over
        spent = time.monotonic() - self.began
        if not left:
            spared = f", {len(self.stopped.left_out)} left out" if self.stopped.left_out else ""
            return f"{over} runs in {spent / 60:.0f} min{spared}"
        ahead = f", about {spent / fresh * left / 60:.0f} min to go" if fresh else ""
        return f"{over} of {len(self.plan.runs)} runs{ahead}"
