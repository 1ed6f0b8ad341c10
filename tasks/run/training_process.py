"""Trains a run in this process: builds the model, the data and the trainer, resumes from a
checkpoint, trains, and writes the summary.
"""

import logging
import math
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tasks import Config, State
from tasks.callbacks import Observers, users
from tasks.callbacks.cadence import Cadence
from tasks.callbacks.checkpoints import CheckpointSaver
from tasks.callbacks.observers import averages, observers
from tasks.callbacks.recorder import Recorder
from tasks.data import DataModule
from tasks.logging import loggers, startup, summary
from tasks.logging.bar import Bar
from tasks.logging.csv_log import CsvLog
from tasks.logging.run_log import log_into
from tasks.run import checkpoints, checks, heartbeat, nonfinite, ranks
from tasks.run import trainer as trainers
from tasks.run.compatibility import resume_fault
from tasks.run.decoding_speed import check_decodable, decoding_speed
from tasks.run.exit_codes import RESTART_HINT, NonFinite, SignalBox
from tasks.run.job import Job
from tasks.run.task_class import task_of
from xformer_kit import build
from xformer_kit.config import config_hash, config_yaml
from xformer_kit.config.machine import missing_logger
from xformer_kit.config.saved import check_unchanged, component_hashes
from xformer_kit.config.unused import never_peaks
from xformer_kit.data import collate, prepare
from xformer_kit.data.training_data import TrainingData, attach_tokenizers, check_fingerprint
from xformer_kit.inspect.flops import flops_per_token
from xformer_kit.model.compiling import compile_blocks
from xformer_kit.objective import objective_of
from xformer_kit.registry import ConfigError
from xformer_kit.registry.printable import printable
from xformer_kit.study.run_key import codes

log = logging.getLogger("xformer")
# Keys that a checkpoint must have to resume from it; CheckpointSaver.save writes them.
CHECKPOINT_KEYS = (
    "state_dict",
    "global_step",
    "optimizer",
    "window",
    "best",
    "validation",
    "left_out",
    "accumulate",
    "config",
)
METRICS = ("step", "train/loss", "val/loss", "val/perplexity")
SPEED = ("step", "time", "seconds_per_step", "tokens_per_second")


class TrainingProcess:
    """The state of a run while it trains in this process. `run` returns the exit code, or
    raises a subclass of Ended.
    """

    def __init__(self, config: Config, job: Job):
        self.began = time.perf_counter()
        self.config = config
        self.job = job
        self.run_dir = run_dir = job.run_dir
        self.folder = run_dir / "checkpoints"
        self.first = ranks.rank() == 0
        self.signals = SignalBox()
        self.signals.install()
        self.state: State = {}  # of the checkpoint to resume from
        self.bar: Bar | None = None
        self.log = loggers.SafeLogger(None)
        self.trainer: Any = None
        self.checkpoints: CheckpointSaver | None = None
        self.results: State = {}
        self.heartbeat = heartbeat.begin(config["trainer"])
        trainers.quiet()
        if self.first:
            log_into(run_dir / "train.log")
        if fault := missing_logger(config["logger"]["name"]):
            raise ConfigError(fault)

    def run(self) -> int:
        if self.first:
            checkpoints.sweep_leftovers(self.folder)
        checkpoint = checkpoints.newest(self.folder, CHECKPOINT_KEYS)
        if checkpoint:
            self.state = checkpoint[1]
            check_unchanged(self.run_dir, self.config, self.state)
        self._prepare()
        self._make_task()
        if checkpoint:
            self._restore(*checkpoint)
        if trainers.compiles(self.config["trainer"]):
            compile_blocks(self.task.model)
        self._make_trainer()
        if self.first:
            self._begin()
        self._fit()
        if (skipped := int(self.task.skipped_steps)) and skipped == self.task.step:
            raise nonfinite.nothing_learned(skipped)
        if self.first:
            self._write_summary()
        self.close(0)
        return 0

    def _prepare(self) -> None:
        """Prepare and check the corpus, its tokenizers and the objective."""
        config = self.config
        self._show_stage("Preparing the data")
        self.prepared = prepared = prepare(config)
        self.objective = attach_tokenizers(objective_of(config), prepared)
        checks.check_vocabulary(config["model"].get("vocab_size"), prepared.tokenizer.size)
        check_fingerprint(self.state.get("data_fingerprint"), prepared.fingerprint)
        checks.check_planned(self.job.key, config, prepared.fingerprint)
        self.data = TrainingData(config, prepared, self.objective)
        self.total = self.data.total_steps
        if not self.first:
            return
        for line in (*checks.notes(config, prepared), *never_peaks(config, self.total)):
            self._print_line(str(line))
        prepared.tokenizer.save(self.run_dir / "tokenizer.json")
        if self.objective.source_tokenizer is not prepared.tokenizer:
            self.objective.source_tokenizer.save(self.run_dir / "source_tokenizer.json")

    def _make_task(self) -> None:
        config, objective = self.config, self.objective
        self._show_stage("Building the model")
        self.vocab_size = config["model"].get("vocab_size") or self.prepared.tokenizer.size
        source = objective.source_tokenizer
        source_size = None if source is objective.tokenizer else source.size
        model = build(config, self.vocab_size, source_size)
        check_decodable(config, model)
        self.task = task_of(config)(
            config,
            model,
            objective,
            total_steps=self.total,
            data=self.data,
            signals=self.signals,
        )

    def _restore(self, path: Path, state: State) -> None:
        """Load a checkpoint into the task, or an older one if the task cannot resume from it."""
        if resume_fault(state, self.task):
            fits = partial(resume_fault, task=self.task)
            path, state = checkpoints.newest(self.folder, CHECKPOINT_KEYS, fits) or (path, state)
            check_unchanged(self.run_dir, self.config, state)
            check_fingerprint(state.get("data_fingerprint"), self.prepared.fingerprint)
        if self.first and state.get("is_best") and path.name == checkpoints.LAST:
            checkpoints.keep_as_best(self.folder)  # the run may have been killed before the copy
        if self.first and path.name == checkpoints.PREVIOUS:
            checkpoints.rename_last(self.folder)
        self.task.restore(state)
        self.state = state

    def _make_trainer(self) -> None:
        config, state = self.config, self.state
        self.cadence = cadence = Cadence(config["trainer"], self.total)
        metrics, speed, line = self._open_logs()
        self.recorder = recorder = Recorder(
            cadence, metrics, speed, self.log, self.began, state.get("spent", {})
        )
        fixed = {
            "config": config_yaml(config),
            "data_fingerprint": self.prepared.fingerprint,
            "versions": summary.versions(),
        }
        own = users.create_callbacks(config, self.run_dir, state.get("callbacks", {}))
        average = averages(config, cadence, self.folder, state.get("average"))
        last = state.get("best"), state.get("global_step", -1)
        saver = CheckpointSaver(cadence, self.folder, fixed, recorder, own, average, *last)
        self.checkpoints = saver
        if self.first:
            live = config["trainer"].get("enable_progress_bar", True) and not self.job.quiet
            startup.clear()
            self.bar = Bar(self.total, self.task.step, None if live else False)
        if line:
            self._print_line(line)
        found = observers(self, saver, average)
        same = checks.SameConfig(config_hash(config), self.prepared.fingerprint)
        # A user's callbacks come first: ours save their state.
        callbacks = [*own.values(), Observers([same, *found])]
        self.trainer = trainers.make(config, callbacks, self.log.logger, self.total, ranks.world())

    def _open_logs(self) -> tuple[CsvLog | None, CsvLog | None, str | None]:
        """Returns metrics.csv, speed.csv and the logger's message to the user; None except on rank
        0.
        """
        if not self.first:
            return None, None, None
        logger, line = loggers.make(self.config, self.run_dir)
        self.log = loggers.SafeLogger(logger)
        text = ("val/bits_per_byte",) if self.data.bytes_per_token is not None else ()
        columns = (*METRICS, *text, "lr", "grad_norm")
        step, mark = self.task.step, self.state.get("metrics")
        metrics = CsvLog(self.run_dir / "metrics.csv", columns).open(step, mark)
        return metrics, CsvLog(self.run_dir / "speed.csv", SPEED).open(step), line

    def _begin(self) -> None:
        """Describe the run, and remove the summary of a part of it."""
        step, model = self.task.step, self.task.model
        self._print_line(summary.beginning(self.config, model, self.prepared.train, self.run_dir))
        if self.state:
            self._print_line(f"Going on at step {step:,} of {self.total:,}.")
        if step < self.total:
            (self.run_dir / summary.SUMMARY).unlink(missing_ok=True)

    def _fit(self) -> None:
        trainers.lean(self.trainer)
        if self.trainer.strategy.root_device.type == "cuda":  # on a CPU, slower kernels for no gain
            torch.set_float32_matmul_precision("high")
        self.signals.patient = False
        over = self.task.step >= self.total
        self.trainer.fit(self.task, datamodule=DataModule(self.data))
        if over:
            # A run that was killed after its last checkpoint: fit takes no step, so the averages
            # of the last step are put in place here.
            self.task.load_state_dict(self.state.get("average", {}), strict=False)

    def explain(self, step: int) -> NonFinite:
        """Saves the last finite state, and returns the error; all ranks report the same module."""
        rank, world = self.trainer.global_rank, self.trainer.world_size
        steps = self.data.step_sampler(self.task.accumulate, rank, world)
        what = nonfinite.explain(self.task, self.data.examples("train"), collate, steps, step)
        found = ranks.gathered(what, world)
        what = next((text for text in found if nonfinite.NOTHING not in text), found[0])
        log.info("%s", what)
        kept = nonfinite.keep(self.task, self.checkpoints, step)
        # A step is a function of the config and its number: a resumed run ends at the same step.
        return NonFinite(f"{what} {kept} {RESTART_HINT}", step + 1)

    def _write_summary(self) -> None:
        if self.bar is not None:
            self.bar.close()
        found = self._results()
        sample = self.task.sample()
        found["sample"] = sample and sample.text
        summary.write(found, self.run_dir / summary.SUMMARY)
        (self.run_dir / summary.ENDED).unlink(missing_ok=True)
        self.results = found
        log.info("finished: %s", {k: v for k, v in found.items() if k.startswith("val/")})
        if self.job.quiet or self.job.listed:
            loss = found.get("val/loss", math.nan)
            end = f", {found['stopped']}" if found["stopped"] else ""
            line = f"job {self.run_dir.name}: validation loss {loss:.4f}{end}"
            print(printable(line), flush=True)
        else:
            summary.show(found, self.run_dir, sample, components=self.job.components)

    def _results(self) -> State:
        """The content of summary.json, without the sample."""
        config, prepared, task = self.config, self.prepared, self.task
        device = self.trainer.strategy.root_device
        spent = self.recorder.spent(task, device)
        seq_len, share = config["data"]["seq_len"], self.objective.given_logits
        devices = {
            "kind": str(device),
            "processes": self.trainer.world_size,
            "accumulate": task.accumulate,
        }
        return {
            **{f"val/{name}": value for name, value in task.validation.items()},
            **{f"test/{name}": value for name, value in task.test_metrics().items()},
            **decoding_speed(task),
            "task": config["task"]["name"],
            "again": summary.rerun_overrides(config),
            "steps": task.step,
            "stopped": self.cadence.stopped(),
            "steps_left_out": int(task.skipped_steps),
            "params": sum(p.numel() for p in task.model.parameters()),
            "flops_per_token": flops_per_token(task.model, seq_len, share),
            "tokens_per_second": self.recorder.tokens_per_second(spent),
            "peak_memory_bytes": spent["peak_memory_bytes"],
            "seconds": spent["seconds"],
            "epoch_examples_dropped": self.data.batches.dropped,
            "examples_seen": self.data.part_counts(task.step),  # of each part of a mixture
            "examples_left_out": prepared.dropped,
            "examples_in_training": {
                split: count for split, (count, *_) in prepared.overlap.items()
            },
            "tokens_unknown": prepared.unknown,  # file -> count
            "config_hash": config_hash(config),
            "data_fingerprint": prepared.fingerprint,
            "kernels": summary.kernels(config, self.vocab_size),
            "devices": devices,
            "components": component_hashes(self.job.components),
            "code": codes(config),
            "versions": summary.versions(),
            "run": str(self.run_dir),
        }

    def _show_stage(self, stage: str) -> None:
        if self.first and self.job.shows_stages:
            startup.show(stage)

    def _print_line(self, line: str) -> None:
        log.info("%s", line)
        if self.job.quiet:
            return
        if self.bar is not None:
            self.bar.print_line(line)
        else:
            startup.clear()
            print(printable(line), file=sys.stderr, flush=True)

    def saved_step(self) -> int | None:
        """The step whose state this process saved last, None if none was."""
        if not self.first or self.checkpoints is None or self.checkpoints.saved < 0:
            return None
        return self.checkpoints.saved

    def close(self, code: int) -> None:
        """Close the progress bar, the loggers, the heartbeat and the process group."""
        if self.heartbeat is not None:
            self.heartbeat.stop()
        if self.bar is not None:
            self.bar.close()
        self.log.finish(self.results, code)
        self.signals.restore()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
