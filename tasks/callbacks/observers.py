"""Creates the observers of a run, in the order in which they run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks import Config
from tasks.callbacks.averages import Averages
from tasks.callbacks.cadence import Cadence
from tasks.callbacks.checkpoint_saver import CheckpointSaver
from tasks.callbacks.monitored import MonitoredMetrics, Ranking
from tasks.callbacks.norms import NormsLog
from tasks.callbacks.optimizer_averages import OptimizerAverages
from tasks.callbacks.pictures import AttentionPictures
from tasks.callbacks.profile import Profile
from tasks.callbacks.progress import ProgressObserver
from tasks.callbacks.pruning import Pruning
from tasks.callbacks.samples import Samples
from tasks.callbacks.shared_cores import SharedCores
from tasks.callbacks.stopping import Deadline, NonFiniteGuard, RequestedStop, SignalStop
from tasks.callbacks.user_callbacks import own_hooks
from tasks.logging.summary import versions
from xformer_kit.config import config_yaml
from xformer_kit.config.options.callbacks import (
    CALLBACKS,
    Norms,
    Pictures,
    monitored_metrics,
    only_observes,
)
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.config.options.trainer_schema import seconds
from xformer_kit.metrics import VAL, mode_of
from xformer_kit.optim import averages_weights

BUILT_IN: dict[type, Any] = {Norms: NormsLog, Pictures: AttentionPictures}


def create_averages(
    config: Config, cadence: Cadence, folder: Path, saved: Any
) -> Averages | OptimizerAverages | None:
    """Returns the observer that averages weights; None if the config has no average."""
    if averages_weights(config["optim"]):
        return OptimizerAverages(cadence)
    decay, count = config["ema"]["decay"], config["checkpoints"]["average"]
    if decay is None and count <= 1:
        return None
    return Averages(cadence, folder, decay, count, saved)


def create_checkpoint_saver(
    run: Any, own_callbacks: dict[str, Any], averages: Averages | OptimizerAverages | None
) -> CheckpointSaver:
    """Returns the observer that saves checkpoints of a TrainingProcess with a recorder. If it
    resumes from last.ckpt, the files next to it are completed: the process may have been killed
    after last.ckpt was written.
    """
    checkpoint, options = run.checkpoint, {"name": "checkpoints"} | run.config["checkpoints"]
    kept = SETTINGS.create(options)
    mode = mode_of(kept.metric, kept.mode)
    constant_entries = {
        "config": config_yaml(run.config),
        "data_fingerprint": run.prepared.fingerprint,
        "versions": versions(),
    }
    saver = CheckpointSaver(
        run.cadence,
        run.checkpoint_dir,
        constant_entries,
        run.recorder,
        own_callbacks,
        averages,
        Ranking(kept.metric, mode, kept.keep_best, checkpoint.best_steps if checkpoint else []),
        checkpoint.global_step if checkpoint else -1,
        kept.asynchronous,
    )
    if run.resumes_from_last and run.is_rank_zero:
        saver.keep(run.task.step)
    return saver


def create_observers(
    run: Any, saver: CheckpointSaver, averages: Averages | OptimizerAverages | None
) -> list[Any]:
    """Returns the observers of a TrainingProcess with a recorder and, on rank 0, a bar."""
    trainer, cadence, bar = run.config["trainer"], run.cadence, run.bar
    save = lambda: saver.save_unless_saved(run.trainer, run.task)
    guard = NonFiniteGuard(cadence, run.nonfinite_error)
    average_at_end = run.config["checkpoints"]["average"] > 1
    limit, profiled_steps = seconds(trainer.get("max_time")), trainer.get("profile")
    observers = [
        SharedCores(),
        guard,
        _monitored_metrics(run.config, saver.user_callbacks),
        saver.user_callbacks and RequestedStop(cadence, saver.user_callbacks, average_at_end),
        None if limit is None else Deadline(cadence, limit, run.signals),
        run.recorder,
        *_built_in(run),
        bar and ProgressObserver(bar, run.recorder.clock),
        trainer.get("sample", True) and Samples(run.run_dir, run.logger),
        averages,
        saver,
        profiled_steps and run.is_rank_zero and Profile(run.run_dir, profiled_steps),
        run.job.trial and Pruning(cadence, run.job.trial, save),
        SignalStop(cadence, run.signals, guard, save, bool(saver.user_callbacks)),
    ]
    return list(filter(None, observers))


def _built_in(run: Any) -> Iterator[Any]:
    """Yields the built-in callbacks, which observe a run and do not change it, on each rank. Raises
    ConfigError if one needs a package that is not installed.
    """
    for name, node in (run.config.get("callbacks") or {}).items():
        if only_observes(name):
            options = CALLBACKS.create({"name": name} | dict(node))
            create = BUILT_IN[type(options)]
            yield create(options, run.cadence, run.run_dir, run.logger, run.is_rank_zero)


def _monitored_metrics(config: Config, own_callbacks: dict[str, Any]) -> MonitoredMetrics:
    names = monitored_metrics(config)
    for name, callback in own_callbacks.items():
        monitor = getattr(callback, "monitor", None)
        if not getattr(callback, "strict", True):
            continue  # it goes on without the metric
        if isinstance(monitor, str) and monitor.startswith(VAL) and name != "early_stopping":
            names[f"callbacks.{name}"] = monitor
    return MonitoredMetrics(names, any(map(own_hooks, own_callbacks.values())))
