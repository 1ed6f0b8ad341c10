"""The observers of a run, in the order in which they run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.callbacks.averages import Averages
from tasks.callbacks.cadence import Cadence
from tasks.callbacks.checkpoints import CheckpointSaver
from tasks.callbacks.guard import Deadline, NonFiniteGuard, RequestedStop, SignalStop
from tasks.callbacks.profile import Profile
from tasks.callbacks.progress import ProgressBar
from tasks.callbacks.pruning import Pruning
from tasks.callbacks.recorder import Recorder
from tasks.callbacks.samples import Samples
from tasks.callbacks.watching import watchers
from tasks.logging.bar import Bar
from tasks.run.exit_codes import SignalBox
from tasks.types import Config
from xformer_kit.config.trainer_schema import seconds


def averages(config: Config, cadence: Cadence, folder: Path, saved: Any) -> Averages | None:
    """The observer of averaged weights, if the config has an average."""
    decay, count = config["ema"]["decay"], config["checkpoints"]["average"]
    if decay is None and count <= 1:
        return None
    return Averages(cadence, folder, decay, count, saved)


def observers(
    config: Config,
    cadence: Cadence,
    run_dir: Path,
    tell: Any,
    *,
    signals: SignalBox,
    recorder: Recorder,
    averages: Averages | None,
    checkpoints: CheckpointSaver,
    bar: Bar | None,
    trial: Config | None,
    explain: Callable[[int], Exception],
    save: Callable[[], None],
) -> list[Any]:
    """`bar`: None on all ranks but the first; `explain(step)`: the error for a step that was not
    finite; `save()`: saves the state unless that was just done.
    """
    node, first = config["trainer"], bar is not None
    guard = NonFiniteGuard(cadence, explain)
    found: list[Any] = [guard]
    if checkpoints.users:
        found.append(RequestedStop(cadence, config["checkpoints"]["average"] > 1))
    if (limit := seconds(node.get("max_time"))) is not None:
        found.append(Deadline(cadence, limit, signals))
    found += [recorder, *watchers(config, cadence, run_dir, tell, first)]
    if bar is not None:
        found += [ProgressBar(bar, recorder.clock), Samples(run_dir, tell)]
    if averages is not None:
        found.append(averages)
    found.append(checkpoints)
    if node.get("profile") and first:
        found.append(Profile(run_dir, node["profile"]))
    if trial:
        found.append(Pruning(cadence, trial, save))
    return [*found, SignalStop(cadence, signals, guard, save)]
