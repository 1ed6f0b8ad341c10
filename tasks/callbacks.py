"""What happens around a step? Callbacks that cost little each step and do their work now and then.

In the order in which they run: Guard (is the state good, and was a signal sent), Recorder (rows), ProgressBar, Checkpoints,
Profile. All count optimizer steps.
"""

import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

from tasks import checkpoint, nonfinite
from tasks.bar import Bar
from tasks.endings import SignalBox, Stopped, elected
from tasks.language_modeling import LanguageModelingTask as Task
from tasks.records import Records


class Plan:
    """At which steps something is due. `step` counts steps done."""

    def __init__(self, trainer: dict[str, Any], total: int):
        self.total = total
        self.log_every = trainer.get("log_every_n_steps", 10)
        self.val_every, self.checkpoint_every = trainer.get("val_every"), trainer.get("checkpoint_every")
        self.saves = trainer.get("enable_checkpointing", True)

    def logs(self, step: int) -> bool:
        return step % self.log_every == 0 or step == self.total

    def validates(self, step: int) -> bool:
        return step == self.total or bool(self.val_every and step % self.val_every == 0)

    def checkpoints(self, step: int) -> bool:
        return self.saves and bool(self.checkpoint_every and step % self.checkpoint_every == 0)


class Guard(Callback):
    """Ends a run that went wrong or was told to stop; `explain(step)` makes the exception of a step that is not finite."""

    def __init__(self, plan: Plan, box: SignalBox, save: Any, explain: Any):
        self.plan, self.box, self.save, self.explain = plan, box, save, explain

    def on_train_batch_end(self, trainer, task: Task, outputs, batch, batch_idx) -> None:
        step, plan = task.step, self.plan
        self.box.step, task.stop_signal = step, self.box.number
        if step >= plan.total:
            trainer.should_stop = True  # so that Lightning validates once more
        due = plan.logs(step) or plan.validates(step) or plan.checkpoints(step)
        if task.skipped or due:
            self.check(task)
        if trainer.world_size == 1:
            number = self.box.number
        else:  # all ranks stop at the same step; on a GPU the sum is read where the run waits for it anyway
            number = elected(int(task.last[3])) if due or task.device.type == "cpu" else 0
        if number and not plan.validates(step):
            self.stop(task, number)

    def on_validation_end(self, trainer, task: Task) -> None:
        number = self.box.number if trainer.world_size == 1 else elected(int(task.last[3]))
        if number and not trainer.sanity_checking and task.step < self.plan.total:
            self.stop(task, number)

    def check(self, task: Task) -> None:
        """Raises NonFinite where a step was left out and that is to stop the run."""
        if self.plan_stops(task) and (step := nonfinite.read(task)) >= 0:
            raise self.explain(step)

    @staticmethod
    def plan_stops(task: Task) -> bool:
        return task.config["trainer"].get("on_nonfinite", "stop") == "stop"

    def stop(self, task: Task, number: int) -> None:
        self.check(task)
        self.save()
        raise Stopped(number, task.step)


class Clock:
    """Seconds spent on steps: the time between two ticks, less what lay between `pause` and `go`."""

    def __init__(self):
        self.spent, self.since = 0.0, time.perf_counter()

    def tick(self) -> float:
        now = time.perf_counter()
        self.spent, self.since = self.spent + now - self.since, now
        return self.spent

    def pause(self) -> None:
        self.tick()

    def go(self) -> None:
        self.since = time.perf_counter()


class Recorder(Callback):
    """Rows of metrics.csv and speed.csv, and the same for the loggers. A step's row is written once it is validated."""

    def __init__(self, plan: Plan, metrics: Records | None, speed: Records | None, tell: Any, tokens_per_step: int):
        self.plan, self.metrics, self.speed, self.tell, self.tokens_per_step = plan, metrics, speed, tell, tokens_per_step
        self.clock, self.row = Clock(), {}
        self.seconds, self.steps, self.last = 0.0, 0, (0, 0.0)  # measured; (step, seconds) of the last row

    def on_train_start(self, trainer, task: Task) -> None:
        self.clock.go()
        self.first, self.last = task.step, (task.step, 0.0)

    def on_train_batch_end(self, trainer, task: Task, outputs, batch, batch_idx) -> None:
        spent = self.clock.tick()
        done = task.step - self.first
        if done == min(5, self.plan.total - self.first - 1):  # the first steps warm up, and are not measured
            self.warm = done, spent
        elif done > 5:
            self.steps, self.seconds = done - self.warm[0], spent - self.warm[1]
        if not self.plan.logs(task.step):
            return
        row = task.train_row()
        before, seconds = self.last
        self.last = task.step, self.clock.tick()
        pace = (self.last[1] - seconds) / max(1, task.step - before)
        if self.metrics is not None:
            self.row = {"step": task.step} | row
            speed = {"step": task.step, "seconds_per_step": pace, "tokens_per_second": self.tokens_per_step / pace}
            self.speed.add({"time": time.time()} | speed)  # type: ignore[union-attr]
            self.tell(speed, task.step)
            if not self.plan.validates(task.step):
                self._write(task.step)

    def on_validation_start(self, trainer, task: Task) -> None:
        self.clock.pause()

    def on_validation_end(self, trainer, task: Task) -> None:
        if not trainer.sanity_checking and self.metrics is not None:
            self.row = {"step": task.step} | self.row | {f"val/{name}": v for name, v in task.validation.items()}
            self._write(task.step)
        self.clock.go()

    def _write(self, step: int) -> None:
        self.metrics.add(self.row)  # type: ignore[union-attr]
        self.tell({name: value for name, value in self.row.items() if name != "step"}, step)
        self.row = {}

    @property
    def tokens_per_second(self) -> float:
        return self.tokens_per_step * self.steps / self.seconds if self.seconds else 0.0


class ProgressBar(Callback):
    """Redraws the bar a few times a second; only then does it read the loss."""

    def __init__(self, bar: Bar, clock: Clock, tokens_per_step: int):
        self.bar, self.clock, self.tokens_per_step = bar, clock, tokens_per_step
        self.pace: float | None = None  # seconds per step, smoothed
        self.seen = (0, 0.0)

    def on_train_start(self, trainer, task: Task) -> None:
        self.seen = task.step, self.clock.spent

    def on_train_batch_end(self, trainer, task: Task, outputs, batch, batch_idx) -> None:
        if not self.bar.due():
            return
        step, spent = task.step, self.clock.spent
        pace = (spent - self.seen[1]) / max(1, step - self.seen[0])
        self.pace = pace if self.pace is None else 0.7 * self.pace + 0.3 * pace
        self.seen = step, spent
        loss = float(task.last[0] / task.last[1])
        self.bar.show(step, loss, self.tokens_per_step / self.pace if self.pace else 0.0, self.pace * (self.bar.total - step))

    def on_validation_end(self, trainer, task: Task) -> None:
        if not trainer.sanity_checking:
            v = task.validation
            self.bar.say(f"step {task.step:,}: validation loss {v['loss']:.4f}, {v['bits_per_byte']:.4f} bits per byte")


class Checkpoints(Callback):
    """Saves `last` when it is due and at the end, `best` when the validation loss is the lowest so far."""

    def __init__(self, plan: Plan, folder: Path, fixed: dict[str, Any], clock: Clock, guard_check: Any = None):
        self.plan, self.folder, self.fixed, self.clock = plan, folder, fixed, clock
        self.best: float | None = None
        self.saved = -1

    def on_train_batch_end(self, trainer, task: Task, outputs, batch, batch_idx) -> None:
        if self.plan.checkpoints(task.step) and not self.plan.validates(task.step):
            self.save(trainer, task)

    def on_validation_end(self, trainer, task: Task) -> None:
        if trainer.sanity_checking or not self.plan.saves:
            return
        loss = task.validation["loss"]
        better = self.best is None or loss < self.best
        self.best = loss if better else self.best
        step = task.step
        if better or self.plan.checkpoints(step) or self.plan.checkpoint_every is None or step == self.plan.total:
            self.save(trainer, task, better)

    def save(self, trainer, task: Task, better: bool = False) -> None:
        """Write the state after a step. Every rank takes part; the first writes."""
        self.clock.pause()
        strategy = trainer.strategy
        state = {
            "state_dict": strategy.lightning_module_state_dict(),
            "global_step": task.step,
            "optimizer": strategy.optimizer_state(trainer.optimizers[0]),
            "window": task.window.cpu(),
            "best": self.best,
            "validation": task.validation,
            "skipped": task.skipped,
            "accumulate": task.accumulate,
            "world_size": trainer.world_size,
            **self.fixed,
        }
        if scaler := getattr(trainer.precision_plugin, "scaler", None):
            state["scaler"] = scaler.state_dict()
        if trainer.is_global_zero:
            checkpoint.write(state, self.folder)
            if better:
                checkpoint.keep_as_best(self.folder)
        self.saved = task.step
        strategy.barrier()
        self.clock.go()


class Profile(Callback):
    """torch's profiler over some steps: a Chrome trace and a table of the costliest operations."""

    def __init__(self, folder: Path, steps: int, wait: int = 5):
        self.folder, self.steps, self.wait = folder, steps, wait

    def on_train_start(self, trainer, task: Task) -> None:
        from torch.profiler import ProfilerActivity, profile, schedule

        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        plan = schedule(wait=max(0, self.wait - 1), warmup=1, active=self.steps, repeat=1)
        self.profiler = profile(activities=kinds, schedule=plan, on_trace_ready=self._write)
        self.profiler.start()

    def on_train_batch_end(self, trainer, task: Task, outputs, batch, batch_idx) -> None:
        self.profiler.step()

    def on_train_end(self, trainer, task: Task) -> None:
        self.profiler.stop()

    def _write(self, profiler: Any) -> None:
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        profiler.export_chrome_trace(str(self.folder / "trace.json"))
        (self.folder / "profile.txt").write_text(profiler.key_averages().table(sort_by=by, row_limit=30))
