"""Runs that resume with another number of steps, `resume=RUN trainer.max_steps=N`.

Steps before the resume stay as they were; the later ones have the schedule of a run of N steps. The
run's prolonged.json has an entry for each change: the step at which the run resumed, and its steps
before and after the change.
"""

import json
from pathlib import Path
from typing import Any

from tasks import Config
from tasks.checkpoints.checkpoints import newest
from tasks.logging.files import replace_text
from tasks.run.init_from import origin
from xformer_kit.config import config_yaml, read_config
from xformer_kit.data.run_length import run_steps
from xformer_kit.files.saved_files import read_object
from xformer_kit.optim.schedules import SCHEDULES, Schedule
from xformer_kit.registry import config_error
from xformer_kit.study.run_key import run_key

PROLONGED = "prolonged.json"
OTHER_LENGTHS = ("max_tokens", "max_epochs")
LENGTH_OPTIONS = ("trainer.max_steps", *(f"trainer.{key}" for key in OTHER_LENGTHS))


def with_length(config: Config, max_steps: int | None) -> Config:
    """Returns the config with this trainer.max_steps, and without a limit of tokens or epochs;
    the config itself for None or its own length.
    """
    if max_steps is None:
        return config
    trainer = config["trainer"]
    if max_steps == trainer["max_steps"] and not any(trainer.get(key) for key in OTHER_LENGTHS):
        return config
    unlimited = {key: None for key in OTHER_LENGTHS if key in trainer}
    return {**config, "trainer": {**trainer, "max_steps": max_steps, **unlimited}}


def check_length(
    run_dir: Path,
    config: Config,
    max_steps: int,
    stopped: str | None = None,
) -> None:
    """Raises ConfigError if a run cannot resume with this number of steps: it has taken as many, a
    callback has ended it (`stopped`, from summary.json), or it is one of a study, whose directory
    is named after its config.
    """
    if stopped:
        raise config_error(
            "trainer.max_steps",
            f"cannot change: the run in {run_dir} has ended, {stopped}",
            got=f"{max_steps:,}",
            fix="Start a new run from its weights, with init_from.",
        )
    found = newest(run_dir / "checkpoints")
    taken = found[1].global_step if found else 0
    if max_steps <= taken:
        raise config_error(
            "trainer.max_steps",
            f"must be above the {taken:,} steps that the run in {run_dir} has taken",
            got=f"{max_steps:,}",
        )
    if found and is_of_study(config, run_dir, found[1].data_fingerprint):
        raise config_error(
            "trainer.max_steps",
            "cannot change for a run of a study, whose directory is named after its config",
            got=run_dir,
            fix="Copy the directory to another name, and resume the copy.",
        )


def is_of_study(config: Config, run_dir: Path, fingerprint: str) -> bool:
    """Whether a run's directory has the key of its config as its name; fingerprint: of its data."""
    weights = (origin(run_dir) or {}).get("sha256", "")
    return run_key(config, fingerprint, weights) == run_dir.resolve().name


def changes(run_dir: Path) -> list[dict[str, Any]]:
    """Returns the entries of prolonged.json, oldest first; an empty list without the file. Raises
    ConfigError for a damaged file.
    """
    path = run_dir / PROLONGED
    try:
        entries = read_object(path, {"changes": list}, needs=("changes",))["changes"]
    except FileNotFoundError:
        return []
    for entry in entries:
        if not isinstance(entry, dict) or type(entry.get("max_steps")) is not int:
            raise config_error(path, "must have max_steps, a whole number, in each change")
    return entries


def unwritten_length(run_dir: Path, saved: Config) -> int | None:
    """Returns the length of the last change if the run was killed before `record` wrote it into
    config.yaml; None otherwise.
    """
    last = [entry["max_steps"] for entry in changes(run_dir)[-1:]]
    return next((steps for steps in last if steps != saved["trainer"].get("max_steps")), None)


def may_differ(run_dir: Path, config: Config, requested: int | None = None) -> tuple[str, ...]:
    """Returns the paths in which config.yaml may differ from the config of a checkpoint: the
    length, if it is the requested one or that of the last entry of prolonged.json.
    """
    lengths = (requested, *(entry["max_steps"] for entry in changes(run_dir)[-1:]))
    return LENGTH_OPTIONS if config["trainer"].get("max_steps") in lengths else ()


def record(run_dir: Path, config: Config, step: int, steps_per_epoch: int) -> str:
    """Writes the new length of a run that resumes at `step` into prolonged.json and config.yaml,
    and returns a line on its learning rates; returns "" if config.yaml has this length.

    After a kill between the two files, `unwritten_length` is the new length.
    """
    saved = read_config(run_dir)["trainer"]
    if with_length({"trainer": saved}, config["trainer"]["max_steps"])["trainer"] is saved:
        return ""
    old = {**config, "trainer": saved}
    before, after = (run_steps(each, steps_per_epoch) for each in (old, config))
    kept = [change for change in changes(run_dir) if change.get("step") != step]
    # No step has had the length of a change at this step, which this one replaces.
    before = next((c["before"] for c in changes(run_dir) if c.get("step") == step), before)
    entry = {"step": step, "before": before, "max_steps": after}
    text = json.dumps({"changes": [*kept, entry]}, indent=2)
    replace_text(run_dir / PROLONGED, f"{text}\n", sync=True)
    replace_text(run_dir / "config.yaml", config_yaml(config), sync=True)
    return _message(config, step, before, after)


def changed_layout(before: int, now: int) -> str:
    """The end of a sentence on a resume in another number of processes; "" in the same one."""
    if before == now:
        return ""
    return (
        f", in {now} processes instead of {before}: the batches stay as they are, dropout has"
        " other masks, and sums are rounded in another order"
    )


def has_same_rates(config: Config, step: int, before: int, after: int) -> bool:
    """Whether the first `step` steps have the same learning rates in runs of both lengths."""
    old, new = _schedules(config, before, after)
    return all(old(each) == new(each) for each in range(step))


def _schedules(config: Config, *lengths: int) -> list[Schedule]:
    return [SCHEDULES.create(config["schedule"], max_steps=steps) for steps in lengths]


def _message(config: Config, step: int, before: int, after: int) -> str:
    """Returns the line on the learning rates of a run that resumes at `step`; before, after: its
    optimizer steps.
    """
    if has_same_rates(config, step, before, after):
        return (
            f"From {before:,} to {after:,} steps: the result will be that of a run of {after:,}"
            f" steps from the beginning, since the {step:,} steps so far have its learning rates."
        )
    lr = config["optim"].get("lr", 1.0)
    old, new = _schedules(config, before, after)
    return (
        f"From {before:,} to {after:,} steps: the {step:,} steps so far keep their learning rates,"
        f" the others have those of a run of {after:,} steps. The last one was"
        f" {lr * old(step - 1):.3g}, the next one is {lr * new(step):.3g}."
    )
