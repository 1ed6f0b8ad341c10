"""The observers of a run, in the order in which they run."""

from pathlib import Path
from typing import Any

from tasks import Config
from tasks.callbacks.averages import Averages
from tasks.callbacks.cadence import Cadence
from tasks.callbacks.checkpoints import CheckpointSaver
from tasks.callbacks.guard import Deadline, NonFiniteGuard, RequestedStop, SignalStop
from tasks.callbacks.profile import Profile
from tasks.callbacks.progress import ProgressBar
from tasks.callbacks.pruning import Pruning
from tasks.callbacks.samples import Samples
from tasks.callbacks.watching import watchers
from xformer_kit.config.trainer_schema import seconds


def averages(config: Config, cadence: Cadence, folder: Path, saved: Any) -> Averages | None:
    """The observer of averaged weights, if the config has an average."""
    decay, count = config["ema"]["decay"], config["checkpoints"]["average"]
    if decay is None and count <= 1:
        return None
    return Averages(cadence, folder, decay, count, saved)


def observers(run: Any, saver: CheckpointSaver, averages: Averages | None) -> list[Any]:
    """Of a TrainingProcess with its recorder, its log, and on the first rank its bar."""
    config, cadence, bar = run.config, run.cadence, run.bar
    node, save = config["trainer"], lambda: saver.keep(run.trainer, run.task)
    guard = NonFiniteGuard(cadence, run.nonfinite_error)
    found: list[Any] = [guard]
    if saver.users:
        found.append(RequestedStop(cadence, config["checkpoints"]["average"] > 1))
    if (limit := seconds(node.get("max_time"))) is not None:
        found.append(Deadline(cadence, limit, run.signals))
    found += [run.recorder, *watchers(config, cadence, run.run_dir, run.logger, run.is_rank_zero)]
    if bar is not None:
        found += [ProgressBar(bar, run.recorder.clock), Samples(run.run_dir, run.logger)]
    if averages is not None:
        found.append(averages)
    found.append(saver)
    if node.get("profile") and run.is_rank_zero:
        found.append(Profile(run.run_dir, node["profile"]))
    if run.job.trial:
        found.append(Pruning(cadence, run.job.trial, save))
    return [*found, SignalStop(cadence, run.signals, guard, save)]
