"""Trains a run again: its command line, and the differences between then and now."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from tasks import Config, Facts, Metrics, State
from tasks.logging import summary
from tasks.logging.files import numbered_paths
from tasks.process.processes import import_environment
from tasks.run.prolonged import has_same_rates, with_length
from xformer_kit.config import compose, config_hash
from xformer_kit.config.line.to_overrides import to_overrides
from xformer_kit.config.saved.config_file import component_hashes
from xformer_kit.registry import ConfigError
from xformer_kit.study.run_key import code_hashes
from xformer_kit.text.command_lines import override_text

REPRODUCED = Path("outputs", "reproduced")


def train_lines(
    config: Config, facts: Facts, components: list[str], directory: Path
) -> list[list[str]]:
    """Returns the arguments of each `xformer train` that trains a config again in a directory: one,
    and one more for each time that the run was prolonged at its end. Raises ConfigError if no
    command line of this version composes it, or if this version rejects it.
    """
    changes = _repeatable(facts)
    overrides = to_overrides(with_length(config, changes[0]["before"]) if changes else config)
    compose(overrides, data=False)
    files = [f"components={override_text(components)}"] if components else []
    place = override_text(str(directory))
    longer = [f"trainer.max_steps={change['max_steps']}" for change in changes]
    return [
        [*files, *overrides, f"hydra.run.dir={place}"],
        *([*files, f"resume={place}", length] for length in longer),
    ]


def _repeatable(facts: Facts) -> list[State]:
    """Returns the last changes of a run's length that each were made at its end."""
    changes = reversed(facts.get("prolonged", ()))
    return [*takewhile(lambda change: change["step"] == change["before"], changes)][::-1]


def unused_directory(run: Path) -> Path:
    """Returns a directory that does not exist yet, named after the run."""
    paths = numbered_paths(REPRODUCED / run.resolve().name)
    return next(path for path in paths if not path.exists())


def differences(config: Config, facts: Facts, components: list[str]) -> Iterator[str]:
    """Yields a sentence on each difference from when the run was trained: config, data, code,
    versions, device. facts: its summary.json.
    """
    if (now := config_hash(config)) != facts["config_hash"]:
        yield (
            f"config: its hash was {facts['config_hash']} and is {now}: config.yaml was changed"
            " since, or this version has new settings."
        )
    yield from _data_differences(config, facts["data_fingerprint"])
    yield from _code_differences(config, facts, components)
    installed = summary.versions()
    for name, then in facts["versions"].items():
        if installed.get(name) != then:
            yield f"versions.{name}: was {then}, and is {installed.get(name, 'not installed')}."
    yield from _device_differences(config, facts["devices"]["kind"].partition(":")[0])


def notes(config: Config, facts: Facts) -> Iterator[str]:
    """Yields a sentence on what no command line repeats: a run that was prolonged before its last
    step, or that ended before it.
    """
    changes = facts.get("prolonged", ())
    for change in changes[: len(changes) - len(_repeatable(facts))]:
        step, before, after = change["step"], change["before"], change["max_steps"]
        if not has_same_rates(config, step, before, after):
            yield (
                f"trainer.max_steps: was changed from {before:,} to {after:,} at step {step:,};"
                " with this schedule, the steps before it have other learning rates in a run that"
                " is not prolonged."
            )
    stopped = facts.get("stopped")
    if stopped and "callbacks.early_stopping" not in stopped:  # which stops at the same step again
        yield (
            f"trainer: the run ended before its last step, {stopped}; another run may end"
            " at another step."
        )


def _data_differences(config: Config, then: str) -> Iterator[str]:
    from xformer_kit.data import prepare

    try:
        now = prepare(config).fingerprint
    except ConfigError as error:
        yield from error.messages
        return
    if now != then:
        yield (
            f"data: its fingerprint was {then[:16]} and is {now[:16]}: the text or its tokens"
            " differ."
        )


def _code_differences(config: Facts, facts: Facts, components: list[str]) -> Iterator[str]:
    hashes = component_hashes(components)
    for name, then in facts["components"].items():
        if hashes.get(name) != then:
            yield f"components: {name} was changed since the run."
    now = code_hashes(config)
    for module in sorted({*facts["code"], *now}):
        if facts["code"].get(module) != now.get(module):
            yield f"code: {module} was changed since the run."


def _device_differences(config: Facts, then: str) -> Iterator[str]:
    import torch

    gpu = config["trainer"]["accelerator"] in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    if then != (now := "cuda" if gpu else "cpu"):
        yield f"device: was {then}, and is {now}: sums are rounded in another order."


def train(arguments: list[str], output_to_stderr: bool) -> int:
    """Train with these arguments in another process, and return its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "tasks.cli", "train", *arguments],
        env=os.environ | import_environment(),
        stdout=2 if output_to_stderr else None,
    ).returncode


def compared_values(facts: Facts) -> Metrics:
    """Returns the steps and all final metrics of a summary.json."""
    return {"steps": facts["steps"], **summary.final_metrics(facts)}


def compare_values(then: float | None, now: float | None) -> str:
    """Returns whether a value was reproduced, and by how much it differs."""
    if then is None or now is None:
        was, is_ = ("missing" if number is None else repr(number) for number in (then, now))
        return f"was {was}, and is {is_}"
    if then == now or (math.isnan(then) and math.isnan(now)):
        return f"{now!r}, equal to the last digit"
    share = f", {100 * abs(now - then) / abs(then):.2g} %" if then else ""
    return f"was {then!r}, and is {now!r}: off by {abs(now - then):.3g}{share}"
