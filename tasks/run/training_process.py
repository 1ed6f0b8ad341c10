"""One process's part in a run: it puts model, data and trainer together, goes on from a checkpoint,
and sums up.
"""

import json
import logging
import math
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tasks.callbacks import (
    Averages,
    Cadence,
    CheckpointSaver,
    Deadline,
    NonFiniteGuard,
    Observers,
    Profile,
    ProgressBar,
    Pruning,
    Recorder,
    RequestedStop,
    Samples,
    SignalStop,
    users,
    watching,
)
from tasks.data import DataModule, check_fingerprint, speaking
from tasks.logging import loggers, summary
from tasks.logging.bar import Bar
from tasks.logging.csv_log import CsvLog
from tasks.run import checkpoints, heartbeat, nonfinite, processes
from tasks.run import trainer as trainers
from tasks.run.compatibility import misfit
from tasks.run.decoding_speed import decodable, decoding_speed
from tasks.run.exit_codes import NonFinite, SignalBox
from tasks.task_class import task_of
from xformer_kit import build
from xformer_kit.config import config_hash, config_yaml
from xformer_kit.config.machine import missing_logger
from xformer_kit.config.saved import check_unchanged, part_hashes
from xformer_kit.config.trainer_schema import seconds
from xformer_kit.config.untaken import never_peaks
from xformer_kit.data import collate, prepare
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.inspect.flops import flops_per_token
from xformer_kit.model.compiling import compile_blocks
from xformer_kit.objective import objective_of
from xformer_kit.registry import ConfigError
from xformer_kit.registry.printable import printable
from xformer_kit.study.key import codes, run_key

log = logging.getLogger("xformer")
# Of a checkpoint to go on from; Checkpoints.save writes them.
NEEDED = (
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
    """Everything that lives while a run trains in this process. `run` returns the exit code or
    raises an ending.
    """

    def __init__(
        self, config: dict[str, Any], run_dir: Path, parts: tuple[str, ...], quiet: bool = False
    ):
        self.began = time.perf_counter()
        self.config = config
        self.run_dir = run_dir
        self.parts = parts
        self.quiet = quiet
        self.first = processes.rank() == 0
        self.box = SignalBox()
        self.box.install()
        self.bar: Bar | None = None
        self.log = loggers.SafeLogger(None)
        self.trainer: Any = None
        self.pulse = heartbeat.begin(config["trainer"])
        trainers.quiet()
        if self.first:
            _log_into(run_dir / "train.log")
        if fault := missing_logger(config["logger"]["name"]):
            raise ConfigError(fault)

    def run(self) -> int:
        config = self.config
        checkpoints.sweep_leftovers(self.run_dir / "checkpoints") if self.first else None
        found = checkpoints.newest(self.run_dir / "checkpoints", NEEDED)
        self.state = found[1] if found else {}
        if found:
            check_unchanged(self.run_dir, config, self.state)
        self.prepared = prepare(config)
        self.objective = speaking(objective_of(config), self.prepared)
        _enough_tokens(config["model"].get("vocab_size"), self.prepared.tokenizer.size)
        check_fingerprint(self.state.get("data_fingerprint"), self.prepared.fingerprint)
        as_planned(config, self.prepared.fingerprint, os.environ.get(processes.KEY))
        for line in (
            (*_fewer_tokens(config, self.prepared), *_overlaps(self.prepared)) if self.first else ()
        ):
            self._say(line)
        self.data = DataModule(config, self.prepared, self.objective)
        self.total = self.data.total_steps
        if self.first and (line := never_peaks(config, self.total)):
            self._say(line)
        if self.first:
            self.prepared.tokenizer.save(self.run_dir / "tokenizer.json")
            if self.objective.source_tokenizer is not self.prepared.tokenizer:
                self.objective.source_tokenizer.save(self.run_dir / "source_tokenizer.json")
        self._make_task()
        if found:
            self._restore(*found)
        if trainers.compiles(config["trainer"]):
            compile_blocks(self.task.model)
        self._make_trainer()
        if self.first:
            self._say(summary.beginning(config, self.task.model, self.prepared.train, self.run_dir))
        if found and self.first:
            self._say(f"Going on at step {self.task.step:,} of {self.total:,}.")
        if self.task.step < self.total:
            (
                (self.run_dir / "summary.json").unlink(missing_ok=True) if self.first else None
            )  # of a part of the run
        self._fit()
        if (left := int(self.task.left_out)) and left == self.task.step:
            raise nonfinite.nothing_learned(left)
        if self.first:
            self._sum_up()
        self.close(0)
        return 0

    def _make_task(self) -> None:
        config = self.config
        self.vocab_size = config["model"].get("vocab_size") or self.prepared.tokenizer.size
        source = self.objective.source_tokenizer
        model = build(
            config, self.vocab_size, None if source is self.objective.tokenizer else source.size
        )
        decodable(config, model)
        objective = self.objective
        self.task = task_of(config)(
            config, model, objective, total_steps=self.total, data=self.data
        )

    def _restore(self, path: Path, state: dict[str, Any]) -> None:
        """Give the task a checkpoint's state, or that of an older checkpoint if this one is not of
        the task's model.
        """
        task = self.task
        if misfit(state, task):
            path, state = checkpoints.newest(path.parent, NEEDED, partial(misfit, task=task)) or (
                path,
                state,
            )
            check_unchanged(self.run_dir, self.config, state)
            check_fingerprint(state.get("data_fingerprint"), self.prepared.fingerprint)
        if self.first and state.get("is_best") and path.name == checkpoints.LAST:
            checkpoints.keep_as_best(
                path.parent
            )  # the run may have been killed before it was copied
        if self.first and path.name == checkpoints.PREVIOUS:
            checkpoints.set_aside(path.parent)
        task.load_state_dict(state["state_dict"])
        task.step, task.left_out = state["global_step"], torch.tensor(state["left_out"])
        task.validation, task.accumulate = state["validation"], state["accumulate"]
        self.state = task.saved = state

    def _make_trainer(self) -> None:
        node, plan = self.config["trainer"], Cadence(self.config["trainer"], self.total)
        self.plan = plan
        metrics, speed, line = self._open_records()
        self.recorder = Recorder(
            plan, metrics, speed, self.log, self.began, self.state.get("spent", {})
        )
        fixed = {
            "config": config_yaml(self.config),
            "data_fingerprint": self.prepared.fingerprint,
            "versions": summary.versions(),
        }
        own = users.made(self.config, self.run_dir, self.state.get("callbacks", {}))
        self.checkpoints = CheckpointSaver(
            plan, self.run_dir / "checkpoints", fixed, self.recorder, own
        )
        self.checkpoints.best = self.state.get("best")
        self.checkpoints.saved = self.state.get("global_step", -1)
        guard = NonFiniteGuard(plan, self._explain)
        stopper = SignalStop(
            plan, self.box, guard, lambda: self.checkpoints.keep(self.trainer, self.task)
        )
        limit = seconds(node.get("max_time"))
        decay, count = self.config["ema"]["decay"], self.config["checkpoints"]["average"]
        observers: list[Any] = [guard, *([RequestedStop(plan, count > 1)] if own else [])]
        observers += [*([Deadline(plan, limit)] if limit is not None else []), self.recorder]
        observers += watching.watchers(self.config, plan, self.run_dir, self.log, self.first)
        if self.first:
            live = None if node.get("enable_progress_bar", True) and not self.quiet else False
            self.bar = Bar(self.total, self.task.step, live)
            observers += [
                ProgressBar(self.bar, self.recorder.clock),
                Samples(self.run_dir, self.log),
            ]
            if line:
                self._say(line)
        if decay is not None or count > 1:
            saved = self.state.get("average")
            observers.append(Averages(plan, self.run_dir / "checkpoints", decay, count, saved))
        observers.append(self.checkpoints)
        if node.get("profile") and self.first:
            observers.append(Profile(self.run_dir, node["profile"]))
        if trial := json.loads(os.environ.get(processes.TRIAL, "null")):
            observers.append(
                Pruning(plan, trial, lambda: self.checkpoints.keep(self.trainer, self.task))
            )
        observers.append(stopper)
        logger, callbacks = (
            self.log.logger,
            [*own.values(), Observers(observers)],
        )  # theirs first: ours save their state
        self.trainer = trainers.make(self.config, callbacks, logger, self.total, processes.world())
        self.task.agree = partial(same_config, config_hash(self.config), self.prepared.fingerprint)

    def _open_records(self) -> tuple[CsvLog | None, CsvLog | None, str | None]:
        if not self.first:
            return None, None, None
        step = self.task.step
        logger, line = loggers.make(self.config, self.run_dir)
        self.log = loggers.SafeLogger(logger)
        return (
            CsvLog(self.run_dir / "metrics.csv", self._columns()).open(
                step, self.state.get("metrics")
            ),
            CsvLog(self.run_dir / "speed.csv", SPEED).open(step),
            line,
        )

    def _columns(self) -> tuple[str, ...]:
        text = ("val/bits_per_byte",) if self.data.bytes_per_token is not None else ()
        return (*METRICS, *text, "lr", "grad_norm")

    def _fit(self) -> None:
        trainers.lean(self.trainer)
        task, trainer = self.task, self.trainer
        task.boundary = self._loaders
        if (
            trainer.strategy.root_device.type == "cuda"
        ):  # on a CPU it takes products to slower kernels, for no gain
            torch.set_float32_matmul_precision("high")
        self.box.patient = False
        # A run that was killed after its last checkpoint: fit attaches the task and takes no step,
        # so that the last step's averages are put in place here.
        over = task.step >= self.total
        trainer.fit(task)
        if over:
            task.load_state_dict(self.state.get("average", {}), strict=False)

    def _loaders(self, accumulate: int) -> tuple[Any, Any]:
        """Training and validation loaders, once devices and micro-batches are known."""
        trainer, device = self.trainer, self.trainer.strategy.root_device
        rank, world = trainer.global_rank, trainer.world_size
        self.steps = self.data.steps(accumulate, rank, world)
        self.steps.start = self.task.step
        rows = max(1, self.data.rows // (accumulate * world))
        self.task.judges = [part for part, _ in self.data.valid_batches(rows, rank, world)]
        self.box.patient = True
        return self.data.train(self.steps, device), self.data.valid(rows, device, rank, world)

    def _explain(self, step: int) -> NonFinite:
        """The ending for a step that is not finite, with what was good saved; ranks tell each other
        what they found.
        """
        what = nonfinite.explain(self.task, self.data.examples("train"), collate, self.steps, step)
        if self.trainer.world_size > 1:
            found: list[Any] = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(found, what)
            what = next((text for text in found if nonfinite.NOTHING not in text), found[0])
        log.info("%s", what)
        return nonfinite.ending(what, nonfinite.keep(self.task, self.checkpoints, step), step + 1)

    def _sum_up(self) -> None:
        task, first = self.task, self.bar
        if first is not None:
            first.close()
        facts = self._facts()
        sample = task.sample()
        facts["sample"] = sample and sample.text
        summary.write(facts, self.run_dir / "summary.json")
        (self.run_dir / summary.ENDED).unlink(missing_ok=True)
        self.facts = facts
        log.info("finished: %s", {k: v for k, v in facts.items() if k.startswith("val/")})
        if self.quiet or os.environ.get(processes.JOB):
            loss, end = (
                facts.get("val/loss", math.nan),
                f", {facts['stopped']}" if facts["stopped"] else "",
            )
            print(
                printable(f"job {self.run_dir.name}: validation loss {loss:.4f}{end}"), flush=True
            )
        else:
            summary.show(facts, self.run_dir, sample, parts=self.parts)

    def _facts(self) -> dict[str, Any]:
        task, model = self.task, self.task.model
        device = self.trainer.strategy.root_device
        spent = self.recorder.spent(task, device)
        return {
            **{f"val/{name}": value for name, value in task.validation.items()},
            **{f"test/{name}": value for name, value in task.final().items()},
            **decoding_speed(task),
            "task": self.config["task"]["name"],
            "again": summary.again(self.config),
            "steps": task.step,
            "stopped": self.plan.stopped(),
            "steps_left_out": int(task.left_out),
            "params": sum(p.numel() for p in model.parameters()),
            "flops_per_token": flops_per_token(
                model, self.config["data"]["seq_len"], self.objective.given_logits
            ),
            "tokens_per_second": self.recorder.tokens_per_second(spent),
            "peak_memory_bytes": spent["peak_memory_bytes"],
            "seconds": spent["seconds"],
            "epoch_examples_dropped": self.data.batches.dropped,
            "examples_seen": self.data.counts(task.step),  # of each part of a mixture
            "examples_left_out": getattr(self.prepared, "dropped", None) or {},
            "examples_in_training": {
                split: found[0] for split, found in _overlap(self.prepared).items()
            },
            "tokens_unknown": dict(
                getattr(self.prepared, "unknown", None) or {}
            ),  # file of ids -> count
            "config_hash": config_hash(self.config),
            "data_fingerprint": self.prepared.fingerprint,
            "kernels": summary.kernels(self.config, self.vocab_size),
            "devices": {
                "kind": str(device),
                "processes": self.trainer.world_size,
                "accumulate": task.accumulate,
            },
            "parts": part_hashes(self.parts),
            "code": codes(self.config),
            "versions": summary.versions(),
            "run": str(self.run_dir),
        }

    def _say(self, line: str) -> None:
        log.info("%s", line)
        if self.quiet:
            return
        (
            self.bar.say(line)
            if self.bar is not None
            else print(printable(line), file=sys.stderr, flush=True)
        )

    def saved_step(self) -> int | None:
        """The step whose state this process saved last, None if none was."""
        found = getattr(self, "checkpoints", None)
        return found.saved if self.first and found is not None and found.saved >= 0 else None

    def close(self, code: int) -> None:
        """Leave the screen and the loggers in order."""
        if self.pulse is not None:
            self.pulse.stop()
        if self.bar is not None:
            self.bar.close()
        self.log.finish(getattr(self, "facts", {}), code)
        self.box.restore()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _enough_tokens(wanted: int | None, needed: int) -> None:
    """Raises ConfigError where the model has fewer tokens than the tokenizer."""
    if wanted is not None and wanted < needed:
        raise ConfigError(
            f"model.vocab_size: must be at least the tokenizer's {needed}; got {wanted}. Set it to"
            " null."
        )


def _fewer_tokens(config: dict[str, Any], prepared: Any) -> Iterator[str]:
    """What to say where a text gave fewer tokens than tokenizer.vocab_size."""
    node = config["tokenizer"]
    for tokenizer in dict.fromkeys((prepared.source_tokenizer, prepared.tokenizer)):
        asked, has = node.get("vocab_size"), getattr(tokenizer, "vocab_size", 0)
        if (
            isinstance(asked, int)
            and has < asked
            and isinstance(tokenizer, TOKENIZERS[node["name"]])
        ):
            yield (
                f"tokenizer.vocab_size: {asked:,} tokens were asked for, and the text gave {has:,}."
            )


def _overlap(prepared: Any) -> dict[str, Any]:
    return dict(getattr(prepared, "overlap", None) or {})


def _overlaps(prepared: Any) -> Iterator[str]:
    """What to say where examples of validation or test occur in training too."""
    for split, (count, total, what) in _overlap(prepared).items():
        yield (
            f"data: {count:,} of the {total:,} {what} of {split} are in training too: its figures"
            " are better than on new data. Leave them out of one of the two."
        )


def as_planned(config: dict[str, Any], fingerprint: str, key: str | None) -> None:
    """Raises ConfigError where a run of a study is another one than its plan has: the plan composes
    by itself what Hydra and its launcher compose again, and nothing else says that both came to the
    same.
    """
    if key is not None and key != (now := run_key(config, fingerprint)):
        raise ConfigError(
            f"study: this run was planned as {key} and is {now}: its config, its data or its parts"
            " are not those of the plan. Start the study again; the run's config.yaml has what was"
            " composed."
        )


def same_config(digest: str, fingerprint: str, world: int) -> None:
    """Raises ConfigError where ranks do not hold the same config and data."""
    if world == 1:
        return
    found: list[Any] = [None] * world
    torch.distributed.all_gather_object(found, (digest, fingerprint))
    if len({a for a, _ in found}) > 1:
        hashes = ", ".join(a for a, _ in found)
        raise ConfigError(
            f"config: must be the same on all ranks; its hashes are {hashes}. Start all from one"
            " file."
        )
    if len({b for _, b in found}) > 1:
        raise ConfigError(
            "data: must be the same on all ranks; its fingerprints differ. Give every machine the"
            " same text."
        )


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _log_into(path: Path) -> None:
    logger = logging.getLogger("xformer")
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    screen = logging.StreamHandler()
    screen.setLevel(logging.WARNING)
    screen.setFormatter(_PrintableFormatter())
    logger.handlers = [handler, screen]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    log.info("process %d in %s: %s", os.getpid(), path.parent, " ".join(sys.argv))
