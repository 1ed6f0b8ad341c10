"""Trains a run in this process: prepares the data, builds the model, loads the checkpoint, trains,
and writes summary.json.
"""

import logging
import math
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tasks import Config, Metrics, State
from tasks.callbacks import Observers, user_callbacks
from tasks.callbacks.cadence import Cadence
from tasks.callbacks.checkpoint_saver import CheckpointSaver
from tasks.callbacks.observers import create_averages, create_checkpoint_saver, create_observers
from tasks.callbacks.recorder import EarlyMeasurement, Recorder
from tasks.callbacks.stopping import StopBeforeStep
from tasks.checkpoints import checkpoints
from tasks.checkpoints.checkpoint_faults import resume_fault
from tasks.logging import loggers, startup, summary
from tasks.logging.bar import Bar
from tasks.logging.csv_log import CsvLog
from tasks.logging.run_log import log_into
from tasks.modules.configured_metrics import check_metrics
from tasks.modules.data import DataModule
from tasks.modules.task_class import create_task
from tasks.process import heartbeat, ranks
from tasks.process.command_faults import refuse
from tasks.process.exit_codes import NonFinite, SignalBox
from tasks.process.job import Job
from tasks.run import checks, init_from, nonfinite, prolonged
from tasks.run import trainer as trainers
from tasks.run.decoding_speed import check_decodable, decoding_speed
from xformer_kit.checkpoint import Checkpoint
from xformer_kit.config import config_hash
from xformer_kit.config.faults.machine import missing_loggers
from xformer_kit.config.options.logger_options import as_loggers
from xformer_kit.config.options.trainer_schema import SHARDED
from xformer_kit.config.saved.config_file import check_unchanged, component_hashes
from xformer_kit.data import prepare
from xformer_kit.data.preparation.training_data import (
    TrainingData,
    check_fingerprint,
)
from xformer_kit.init_source import objective_for
from xformer_kit.inspect import flops
from xformer_kit.inspect.utilization import peak_flops, peak_speed
from xformer_kit.metrics import TEST, TRAIN_LOSS, VAL, VAL_LOSS, of_split
from xformer_kit.objective import PER_TOKEN
from xformer_kit.registry import ConfigError
from xformer_kit.study.run_key import code_hashes
from xformer_kit.text.printable import printable

log = logging.getLogger("xformer")
SPEED_COLUMNS = ("step", "time", "seconds_per_step", "tokens_per_second")


class TrainingProcess:
    """One process of a run, which may be one of several ranks. `run` trains and returns the exit
    code, or raises a subclass of Ended; `close` must be called after an error.
    """

    def __init__(self, config: Config, job: Job):
        self.start_time = time.perf_counter()
        self.config = config
        self.job = job
        self.run_dir = run_dir = job.run_dir
        self.checkpoint_dir = run_dir / "checkpoints"
        self.is_rank_zero = ranks.rank() == 0
        self.signals = SignalBox()
        self.signals.install()
        self.checkpoint: Checkpoint | None = None  # to resume from
        self.resumes_from_last = False  # whether it is last.ckpt
        self.bar: Bar | None = None
        self.logger = loggers.Loggers()
        self.trainer: Any = None
        self.checkpoint_saver: CheckpointSaver | None = None
        self.results: State = {}  # the content of summary.json, once it is written
        self.flops_per_token: float | None = None
        self.heartbeat = heartbeat.start(config["trainer"])
        trainers.silence_lightning()
        if self.is_rank_zero:
            log_into(run_dir / "train.log")
        refuse(missing_loggers(config["logger"]))

    def run(self) -> int:
        """Trains the run from its last checkpoint or from step 0 to its end."""
        if self.is_rank_zero:
            checkpoints.remove_temporary_files(self.checkpoint_dir)
        # Of a sharded model a rank reads its parts only.
        self.reads_whole = self.config["trainer"].get("strategy") not in SHARDED
        newest = checkpoints.newest(self.checkpoint_dir, whole=self.reads_whole)
        if newest:
            self.checkpoint = newest[1]
            self._check_unchanged(self.checkpoint)
        self._prepare_data()
        self._create_task()
        if newest:
            self._restore(*newest)
        elif (self.config.get("init_from") or {}).get("run"):
            directory = self.run_dir if self.is_rank_zero else None
            self._print_line(
                init_from.start_from(self.config, self.task, self.objective, directory)
            )
        trainers.convert(self.task.model, self.config["trainer"])
        self._create_trainer()
        if self.is_rank_zero:
            self._announce()
        self._fit()
        if (skipped := int(self.task.skipped_steps)) and skipped == self.task.step:
            raise nonfinite.all_steps_skipped(skipped)
        if self.is_rank_zero or self.task.is_sharded:
            self._finish()
        self.close(0)
        return 0

    def _prepare_data(self) -> None:
        """Prepares the corpus, its tokenizers and the objective, and checks them against the config
        and the checkpoint.
        """
        config = self.config
        self._show_stage("Preparing the data")
        self.prepared = prepared = prepare(config)
        resumed = self.run_dir if self.checkpoint else None
        self.objective = objective_for(config, prepared, resumed)
        checks.check_vocabulary(config["model"].get("vocab_size"), prepared.tokenizer.size)
        for split in filter(None, (prepared.train, prepared.valid, prepared.test)):
            self.objective.check_examples(split)
        if self.checkpoint:
            check_fingerprint(self.checkpoint.data_fingerprint, prepared.fingerprint)
        checks.check_planned(self.job.key, config, prepared.fingerprint, self.run_dir)
        self.data = TrainingData(config, prepared, self.objective)
        self.total_steps = self.data.total_steps
        if not self.is_rank_zero:
            return
        for note in (
            *checks.data_notes(config, prepared),
            *checks.schedule_notes(config, self.total_steps),
            *checks.mask_notes(config),
            *checks.lora_notes(config),
        ):
            self._print_line(note)
        prepared.tokenizer.save(self.run_dir / "tokenizer.json")
        if self.objective.source_tokenizer is not prepared.tokenizer:
            self.objective.source_tokenizer.save(self.run_dir / "source_tokenizer.json")

    def _create_task(self) -> None:
        """Builds the model and its Lightning module."""
        config, objective = self.config, self.objective
        self._show_stage("Building the model")
        self.task = create_task(
            config, objective, self.data, total_steps=self.total_steps, signals=self.signals
        )
        check_decodable(config, self.task.model)
        check_metrics(config, objective.num_classes(self.task.model))

    def _restore(self, path: Path, checkpoint: Checkpoint) -> None:
        """Loads a checkpoint into the task; an older one if the task cannot resume from it."""
        if resume_fault(checkpoint, self.task):
            fault = partial(resume_fault, task=self.task)
            older = checkpoints.newest(self.checkpoint_dir, fault, self.reads_whole)
            path, checkpoint = older or (path, checkpoint)
            self._check_unchanged(checkpoint)
            check_fingerprint(checkpoint.data_fingerprint, self.prepared.fingerprint)
        if self.is_rank_zero and path.name == checkpoints.PREVIOUS:
            checkpoints.set_last_aside(self.checkpoint_dir)
        self.task.restore(checkpoint)
        self.checkpoint, self.resumes_from_last = checkpoint, path.name == checkpoints.LAST

    def _check_unchanged(self, checkpoint: Checkpoint) -> None:
        """Raises ConfigError if the config is not that of a checkpoint."""
        may_differ = prolonged.may_differ(self.run_dir, self.config, self.job.max_steps)
        check_unchanged(self.run_dir, self.config, checkpoint.config, may_differ=may_differ)

    def _create_trainer(self) -> None:
        """Creates the logs, the observers and the trainer that calls them."""
        config, checkpoint = self.config, self.checkpoint
        self.cadence = cadence = Cadence(config, self.total_steps)
        if checkpoint and checkpoint.stop:
            cadence.stop_at(*checkpoint.stop)
        metrics_log, speed_log, messages = self._open_logs()
        self.recorder = Recorder(
            cadence,
            metrics_log,
            speed_log,
            self.logger,
            self.start_time,
            checkpoint.spent if checkpoint else {},
        )
        self.logger.follow(
            lambda: self.task.step, lambda: self.recorder.tokens(self.task), self.recorder.record
        )
        own_callbacks = user_callbacks.create_callbacks(
            config, self.run_dir, checkpoint.callbacks if checkpoint else None
        )
        messages += user_callbacks.notes_on_hooks(own_callbacks)
        saved_average = checkpoint and checkpoint.average
        average = create_averages(config, cadence, self.checkpoint_dir, saved_average)
        self.checkpoint_saver = create_checkpoint_saver(self, own_callbacks, average)
        if self.is_rank_zero:
            self.bar = self._create_bar()
        for message in messages:
            self._print_line(message)
        same_config = checks.SameConfig(f"{config_hash(config)} {self.prepared.fingerprint}")
        observers = create_observers(self, self.checkpoint_saver, average)
        # The user's callbacks run before CheckpointSaver, which saves their state.
        callbacks: list[Any] = [Observers([same_config, *observers])]
        if own_callbacks:
            first = [EarlyMeasurement(self.recorder), StopBeforeStep(observers[-1])]
            callbacks = [Observers(first), *own_callbacks.values(), *callbacks]
        self.trainer = trainers.make_trainer(
            config, callbacks, self.logger.lightning, self.total_steps
        )
        peak = peak_flops(self.trainer.strategy.root_device)
        if peak or self.config["trainer"].get("strategy") in SHARDED:  # before it is sharded
            self.flops_per_token = self._flops_per_token()
        if peak:
            devices = self.trainer.world_size
            self.recorder.peak_speed = peak_speed(peak, devices, self.flops_per_token)

    def _create_bar(self) -> Bar:
        options = self.config["trainer"]
        live = options.get("enable_progress_bar", True) and not self.job.quiet
        stage = f"first step{', with compilation' * trainers.compiles_blocks(options)}"
        startup.clear()
        return Bar(self.total_steps, self.task.step, None if live else False, stage)

    def _open_logs(self) -> tuple[CsvLog | None, CsvLog | None, list[str]]:
        """Returns metrics.csv, speed.csv and the loggers' messages to the user; none except on rank
        0.
        """
        if not self.is_rank_zero:
            return None, None, []
        names = " and ".join(name for name in as_loggers(self.config["logger"]) if name != "none")
        if self.job.shows_stages and names:
            startup.show(f"Starting the logger {names}", plain=False)
        self.logger, messages = loggers.create_loggers(self.config, self.run_dir)
        per_token = self.task.objective.loss_unit == PER_TOKEN
        of_loss = ["perplexity"] * per_token
        of_loss += ["bits_per_byte"] * (self.data.bytes_per_token is not None)
        columns = ("step", TRAIN_LOSS, VAL_LOSS, *(f"{VAL}{n}" for n in of_loss), "lr", "grad_norm")
        step, mark = self.task.step, self.checkpoint.metrics_csv if self.checkpoint else None
        metrics_log = CsvLog(self.run_dir / "metrics.csv", columns).open(step, mark)
        return metrics_log, CsvLog(self.run_dir / "speed.csv", SPEED_COLUMNS).open(step), messages

    def _announce(self) -> None:
        """Prints what is trained, and removes the summary of a run that is continued."""
        step, model = self.task.step, self.task.model
        self._print_line(summary.start_line(self.config, model, self.data, self.run_dir))
        if self.checkpoint:
            layout = prolonged.changed_layout(self.checkpoint.world_size, self.trainer.world_size)
            self._print_line(f"Going on at step {step:,} of {self.total_steps:,}{layout}.")
        per_epoch = self.data.batches.steps_per_epoch
        if self.job.max_steps is not None and (
            line := prolonged.record(self.run_dir, self.config, step, per_epoch)
        ):
            self._print_line(line)
        if not self.cadence.is_last(step):
            (self.run_dir / summary.SUMMARY).unlink(missing_ok=True)

    def _fit(self) -> None:
        """Trains the remaining steps. If there are none, the task has the averaged weights of the
        checkpoint afterwards.
        """
        trainers.disable_signal_handling(self.trainer)
        if self.trainer.strategy.root_device.type == "cuda":  # on a CPU, slower kernels for no gain
            torch.set_float32_matmul_precision("high")
        self.signals.waits_for_step = False
        has_all_steps = self.cadence.is_last(self.task.step)
        try:
            self.trainer.fit(self.task, datamodule=DataModule(self.data))
        except Exception as error:
            own_callbacks = self.checkpoint_saver.user_callbacks  # type: ignore[union-attr]
            if fault := user_callbacks.raised_fault(error, own_callbacks):
                raise ConfigError(fault) from error
            raise
        if has_all_steps and self.checkpoint:
            # The run was killed after its last checkpoint: fit takes no step, so the averaged
            # weights of the last step are loaded here.
            self.task.load_state_dict(self.checkpoint.average or {}, strict=False)

    def nonfinite_error(self, step: int) -> NonFinite:
        """See `tasks.run.nonfinite.nonfinite_error`."""
        return nonfinite.nonfinite_error(self.task, self.checkpoint_saver, step)

    def _finish(self) -> None:
        """Computes the results, and on the first rank writes and prints them."""
        if self.bar is not None:
            self.bar.close()
        computed = of_split(self.task.test_metrics(), TEST) | decoding_speed(self.task)
        sample = self.task.sample() if self.config["trainer"].get("sample", True) else None
        if not self.is_rank_zero:
            return
        results = self._results(computed)
        results["sample"] = sample and sample.text
        summary.write(results, self.run_dir / summary.SUMMARY)
        (self.run_dir / summary.ENDED).unlink(missing_ok=True)
        self.results = results
        log.info("finished: %s", {k: v for k, v in results.items() if k.startswith(VAL)})
        if self.job.quiet or self.job.in_multirun:
            loss = results.get(VAL_LOSS, math.nan)
            stopped = f", {results['stopped']}" if results["stopped"] else ""
            line = f"job {self.run_dir.name}: validation loss {loss:.4f}{stopped}"
            print(printable(line), flush=True)
        else:
            summary.show(results, self.run_dir, sample, self.job.components)

    def _results(self, computed: Metrics) -> State:
        """The content of summary.json, without the sample; computed: metrics of the test split and
        the speed of decoding.
        """
        config, prepared, task = self.config, self.prepared, self.task
        model: Any = task.model
        device = self.trainer.strategy.root_device
        spent = self.recorder.spent(task, device)
        speed, peak_speed = self.recorder.tokens_per_second(spent), self.recorder.peak_speed
        return {
            **self.recorder.last_validation(task),
            **computed,
            "task": config["task"]["name"],
            "steps": task.step,
            "stopped": self.cadence.stop_message(),
            "steps_left_out": int(task.skipped_steps),
            "params": sum(p.numel() for p in model.parameters()),
            "params_trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "flops_per_token": self.flops_per_token or self._flops_per_token(),
            "tokens_per_second": speed,
            "mfu": speed / peak_speed if speed and peak_speed else None,
            "peak_memory_bytes": spent["peak_memory_bytes"],
            "seconds": spent["seconds"],
            "unigram_loss": self.data.unigram_loss,
            "epoch_examples_dropped": self.data.batches.dropped,
            "examples_seen": self.data.part_counts(task.step),  # of each part of a mixture
            "examples_left_out": prepared.dropped,
            "examples_in_training": {
                split: count for split, (count, *_) in prepared.overlap.items()
            },
            "tokens_unknown": prepared.unknown,  # file -> count
            "characters_dropped": prepared.characters_dropped,  # split -> count
            "config_hash": config_hash(config),
            "data_fingerprint": prepared.fingerprint,
            "kernels": summary.kernels(config, model.vocab_size),
            "devices": {
                "kind": str(device),
                "processes": self.trainer.world_size,
                "accumulate": task.accumulate,
            },
            "components": component_hashes(self.job.components),
            "init_from": init_from.origin(self.run_dir),
            "prolonged": prolonged.changes(self.run_dir),
            "code": code_hashes(config),
            "versions": summary.versions(),
            "run": str(self.run_dir),
        }

    def _flops_per_token(self) -> float:
        """FLOPs per token of a training step."""
        length, share = self.config["data"]["seq_len"], self.objective.given_logits
        return flops.count(self.task.model, length, share).training

    def _show_stage(self, stage: str) -> None:
        if self.is_rank_zero and self.job.shows_stages:
            startup.show(stage)

    def _print_line(self, line: str) -> None:
        """Logs a line and prints it on rank 0, unless the job is quiet."""
        if not self.is_rank_zero:
            return
        log.info("%s", line)
        if self.job.quiet:
            return
        if self.bar is not None:
            self.bar.print_line(line)
        else:
            startup.clear()
            print(printable(line), file=sys.stderr, flush=True)

    def saved_step(self) -> int | None:
        """The step of the last checkpoint that this process saved, None if there is none."""
        saver = self.checkpoint_saver
        return saver.saved_step if self.is_rank_zero and saver and saver.saved_step >= 0 else None

    def close(self, exit_code: int) -> None:
        """Close the progress bar, the loggers, the heartbeat and the process group."""
        if self.heartbeat is not None:
            self.heartbeat.stop()
        if self.bar is not None:
            self.bar.close()
        self.logger.finish(self.results, exit_code)
        self.signals.restore()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
