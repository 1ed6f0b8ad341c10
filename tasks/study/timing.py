"""The time of an optimizer step of a config on this machine.

Measured times are saved next to the plan, because a budget of seconds must not change when a study
is continued.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasks.logging import summary
from xformer_kit.config import config_hash
from xformer_kit.files.saved_files import read_object
from xformer_kit.registry import ConfigError
from xformer_kit.study.nodes import Config

ROUNDS = 3  # in which all variants are measured, for a budget of seconds
FORWARD_SHARE = 1 / 3  # of a step's time; a backward pass takes twice as long
FILE = "seconds_per_step.json"


class StepClock:
    """The seconds of an optimizer step: data, forward, backward, clipping and update.

    step_seconds: trains a config, and returns the seconds of a step.
    """

    def __init__(self, folder: Path, step_seconds: Callable[[Config], float]):
        self.path = folder / FILE
        self.step_seconds = step_seconds
        self.known = _read(self.path)

    def __call__(self, config: Config) -> float:
        """Returns the seconds of a step; measured only if they are not known."""
        key = self._key(config)
        if key not in self.known:
            self.known[key] = self.step_seconds(config)
        return self.known[key]

    def measure_all(self, configs: Sequence[Config]) -> None:
        """Measures the configs without a known time and stores their seconds per step in `known`:
        the baseline's median times the median over rounds of the ratio to the baseline.

        configs: the baseline first. They are measured in alternating order over several rounds, so
        that warm-up and changing load affect all of them equally.
        """
        baseline = self._key(configs[0])
        by_key = {self._key(config): config for config in configs}
        new = [key for key in by_key if key == baseline or key not in self.known]
        if self.known.keys() >= {*new}:
            return
        self.step_seconds(configs[0])  # warm-up of the process
        rounds: list[dict[str, float]] = []
        for i in range(ROUNDS):
            order = reversed(new) if i % 2 else new
            rounds.append({key: self.step_seconds(by_key[key]) for key in order})
        base = self.known.setdefault(baseline, statistics.median(r[baseline] for r in rounds))
        for key in new:
            relative = statistics.median(seconds[key] / seconds[baseline] for seconds in rounds)
            self.known.setdefault(key, base * relative)

    def validation(self, config: Config, data: Any) -> float:
        """Returns the estimated seconds of a validation on TrainingData."""
        batches, limit = (
            len(data.valid_batches(data.rows)),
            config["trainer"].get("limit_val_batches"),
        )
        if limit is not None:
            batches = min(batches, limit) if isinstance(limit, int) else int(limit * batches)
        return FORWARD_SHARE * batches * self(config)

    @staticmethod
    def _key(config: Config) -> str:
        """Returns the hash of a config without its seed and number of steps."""
        length = {"max_steps": 1, "max_tokens": None}
        return config_hash({**config, "seed": 0, "trainer": {**config["trainer"], **length}})

    def write(self) -> None:
        """Saves the measured times."""
        if self.known:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            summary.write(self.known, self.path)


def _read(path: Path) -> dict[str, float]:
    """Returns config hash -> seconds; empty for a missing or damaged file."""
    try:
        times = read_object(path, {})
    except (FileNotFoundError, ConfigError):
        return {}
    return {k: v for k, v in times.items() if isinstance(v, float) and 0 < v < math.inf}
